// The bits of a sensor: an adaptive Golomb-Rice code of measurements, or of their codes. Byte for
// byte that of tersense (src/tersense/measurements/rice.py tells the format).
//
//     value --> minus what the rows before tell of it --> number u --> ones, zero, rest --> bytes
//               (one term a clock: shift and add)         means follow  (one bit a clock)
//
// The two halves work at the same time: while one value is written, the next is predicted. No
// multiplier. Where COUNT_BITS is not 0, every window begins with its count, which is taken before
// its values; a count of 0 has none. Otherwise every window has ROWS values, and count_valid is
// ignored. value_last marks the last value of a window; after WINDOWS windows the last byte is
// filled up with zeros, byte_last is high with it, and the next image may begin.
module tersense_rice #(
    parameter ROWS       = 256,
    parameter BITS       = 15,   // of a value, two's complement
    parameter WINDOWS    = 300,  // of an image
    parameter COUNT_BITS = 0,
    parameter TERMS      = 256,  // words in the memory of terms
    parameter TERM_FILE  = ""    // {last of its row, minus, weight, place}, row after row
) (
    input  wire            clk,
    input  wire            rst,

    input  wire            count_valid,
    output wire            count_ready,
    input  wire [(COUNT_BITS > 0 ? COUNT_BITS : 1)-1:0] count,

    input  wire            value_valid,
    output wire            value_ready,
    input  wire [BITS-1:0] value,
    input  wire            value_last,

    output reg             byte_valid,
    input  wire            byte_ready,
    output reg  [7:0]      byte_out,
    output reg             byte_last
);
    localparam KEPT          = 32;
    localparam FRACTION_BITS = 6;
    localparam SUM_BITS      = BITS + FRACTION_BITS;
    localparam MEAN_BITS     = BITS + 3;
    localparam ROW_BITS      = ROWS > 1 ? $clog2(ROWS) : 1;
    localparam TERM_BITS     = TERMS > 1 ? $clog2(TERMS) : 1;
    localparam WINDOW_BITS   = WINDOWS > 1 ? $clog2(WINDOWS) : 1;
    localparam RAW_BITS      = BITS > COUNT_BITS ? BITS : COUNT_BITS;
    localparam [SUM_BITS-1:0]  HALF  = 1 << (FRACTION_BITS - 1);
    localparam [MEAN_BITS-1:0] START = {4'b0001, {(BITS-1){1'b0}}} << 1;
    localparam [RAW_BITS-1:0]  ONE   = 1;

    // Predicting: a value waits here until all terms of its row are added up.

    localparam [1:0] COUNT = 2'd0, TAKE = 2'd1, ADD = 2'd2, HAND = 2'd3;
    reg [1:0]             state;
    reg [BITS-1:0]        y, left;
    reg                   y_last;
    reg [ROW_BITS-1:0]    row;
    reg [ROW_BITS:0]      known;    // rows that came so far
    reg [WINDOW_BITS-1:0] window;
    reg [SUM_BITS-1:0]    told;
    reg                   adding, ended;

    wire idle;                      // the writing half takes a number
    wire window_last = window == WINDOWS - 1;
    wire take_count  = state == COUNT && COUNT_BITS > 0 && count_valid && idle;
    wire no_values   = take_count && count == 0;
    wire take_value  = value_valid && value_ready;
    wire hand        = state == HAND && idle;

    assign count_ready = state == COUNT && COUNT_BITS > 0 && idle;
    assign value_ready = state == TAKE;

    // The terms, in the order in which they are needed; word is the one at address.

    reg  [TERM_BITS-1:0] address;
    wire [9:0]           word;
    wire                 step    = state == ADD && !ended;
    wire [TERM_BITS-1:0] forward = address + 1'b1;
    wire [TERM_BITS-1:0] next    = rst || (hand && y_last) ? {TERM_BITS{1'b0}}
                                 : step ? forward : address;

    always @(posedge clk) address <= next;

    tersense_rom #(
        .WIDTH(10), .DEPTH(TERMS), .ADDRESS_BITS(TERM_BITS), .FILE(TERM_FILE)
    ) term_rom (
        .clk(clk), .enable(1'b1), .address(next), .data(word)
    );

    // What was new in the first rows of this window.

    reg [BITS-1:0] news [0:KEPT-1];
    reg [BITS-1:0] one_new;
    reg [2:0]      weight;
    reg            minus;

    wire [ROW_BITS+4:0] number_of_row = row;  // at least as wide as a place
    wire [BITS-1:0]     fresh  = y - told[SUM_BITS-1:FRACTION_BITS];
    wire [SUM_BITS-1:0] wide   = {{FRACTION_BITS{one_new[BITS-1]}}, one_new};
    wire [SUM_BITS-1:0] scaled = wide << weight;

    always @(posedge clk) begin
        if (step) one_new <= news[word[4:0]];
        weight <= word[7:5];
        minus  <= word[8];
        if (hand && row < KEPT) news[number_of_row[4:0]] <= fresh;
    end

    // The number that is written, and the means that say how.

    reg  [MEAN_BITS-1:0] means [0:ROWS-1];
    reg  [MEAN_BITS-1:0] kept_mean, running;
    wire [MEAN_BITS-1:0] mean    = row < known ? kept_mean : running;
    wire [MEAN_BITS:0]   both    = mean + running;
    wire [BITS-1:0]      coded   = row == 0 ? y - left : fresh;
    wire [BITS-1:0]      number  = (coded << 1) ^ {BITS{coded[BITS-1]}};
    wire [MEAN_BITS-1:0] wide_number = {3'b000, number};

    // 2^k, where k is the number of bits of both >> 5: twice its leading one, or 1.
    reg  [BITS-1:0] power;
    integer place;
    always @* begin
        power = 1;
        for (place = 0; place < BITS - 1; place = place + 1)
            if (both[place + 5]) power = 2 << place;
    end

    always @(posedge clk) begin
        if (!hand) kept_mean <= means[row];
        if (hand) means[row] <= mean + wide_number - (mean >> 3);
    end

    always @(posedge clk)
        if (rst) begin
            state   <= COUNT_BITS > 0 ? COUNT : TAKE;
            row     <= {ROW_BITS{1'b0}};
            known   <= {(ROW_BITS+1){1'b0}};
            window  <= {WINDOW_BITS{1'b0}};
            left    <= {BITS{1'b0}};
            running <= START;
            adding  <= 1'b0;
            ended   <= 1'b0;
        end else begin
            adding <= step && word[7:5] != 3'd7;  // a row without terms
            if (step && word[9]) ended <= 1'b1;
            if (adding) told <= minus ? told - scaled : told + scaled;
            if (take_count && !no_values) state <= TAKE;
            if (take_value) begin
                y      <= value;
                y_last <= value_last;
                told   <= HALF;
                ended  <= 1'b0;
                state  <= ADD;
            end
            if (state == ADD && ended) state <= HAND;
            if (hand) begin
                running <= running + wide_number - (running >> 3);
                if (row == 0) left <= y;
                if (row >= known) known <= row + 1'b1;
                row   <= y_last ? {ROW_BITS{1'b0}} : row + 1'b1;
                state <= y_last && COUNT_BITS > 0 ? COUNT : TAKE;
            end
            if ((hand && y_last) || no_values) begin
                window <= window_last ? {WINDOW_BITS{1'b0}} : window + 1'b1;
                if (window_last) begin
                    known   <= {(ROW_BITS+1){1'b0}};
                    left    <= {BITS{1'b0}};
                    running <= START;
                end
            end
        end

    // Writing: ones, a zero and the rest of a number; or ones and all of it; or a count.

    localparam [1:0] IDLE = 2'd0, ONES = 2'd1, REST = 2'd2, FILL = 2'd3;
    reg [1:0]          writing;
    reg [RAW_BITS-1:0] raw, mask;   // the number; the bit that comes next
    reg [BITS-1:0]     rest;        // of it, without the ones that were written
    reg [4:0]          ones;
    reg                final_one;   // nothing follows in this image
    reg [6:0]          gathered;
    reg [2:0]          filled;

    wire room  = !byte_valid || byte_ready;
    wire [BITS:0] less = {1'b0, rest} - {1'b0, mask[BITS-1:0]};
    wire more  = writing == ONES && !less[BITS];
    wire one   = more || (writing == REST && (raw & mask) != 0);
    wire write = writing != IDLE && room && !(writing == ONES && ones[4]);
    wire ends  = (writing == ONES && !more && mask[0]) || (writing == REST && mask[0]);
    wire whole = filled == 3'd7;

    assign idle = writing == IDLE;

    always @(posedge clk)
        if (rst) begin
            writing    <= IDLE;
            filled     <= 3'd0;
            byte_valid <= 1'b0;
        end else begin
            if (byte_ready) byte_valid <= 1'b0;
            if (write) begin
                gathered <= {gathered[5:0], one};
                filled   <= filled + 1'b1;
                if (whole) begin
                    byte_valid <= 1'b1;
                    byte_out   <= {gathered, one};
                    byte_last  <= final_one && (ends || writing == FILL);
                end
            end
            case (writing)
                IDLE: if (take_count) begin
                    raw       <= count;
                    mask      <= COUNT_BITS > 0 ? ONE << (COUNT_BITS - 1) : ONE;
                    final_one <= no_values && window_last;
                    writing   <= REST;
                end else if (hand) begin
                    raw       <= number;
                    rest      <= number;
                    mask      <= power;
                    ones      <= 5'd0;
                    final_one <= y_last && window_last;
                    writing   <= ONES;
                end
                ONES: if (ones[4]) begin  // too many: the number as it is
                    mask    <= ONE << (BITS - 1);
                    writing <= REST;
                end else if (room) begin
                    if (more) begin
                        rest <= less[BITS-1:0];
                        ones <= ones + 1'b1;
                    end else begin
                        mask    <= mask >> 1;
                        writing <= !mask[0] ? REST : final_one && !whole ? FILL : IDLE;
                    end
                end
                REST: if (room) begin
                    mask <= mask >> 1;
                    if (mask[0]) writing <= final_one && !whole ? FILL : IDLE;
                end
                FILL: if (room && whole) writing <= IDLE;
            endcase
        end
endmodule
