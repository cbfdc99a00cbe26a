// What further measurements would gain in a window, from those that it has: its scores.
//
//     y --> minus what the first rows tell --> sum of magnitudes --> log2, in eighths
//                                              of a group of rows         |
//                              score <-- 2nd layer <-- hidden <-- 1st layer
//
// One multiplier does it all, one term a clock: a dot product takes its weights from the ROM in the
// order in which they lie there, and its operands from one of three regions of a small RAM: the
// first rows of the window, the logarithms of its groups and those around it, the hidden numbers.
//
// Rows come in their order; y_last marks the last one that is known, which may be any from the end
// of the first group on. Groups that are not complete by then have no say. Then come the scores of
// all steps from one level to the next, nowhere rising, -2048 to 2046. Meanwhile y waits. In an
// encoder (!alone), whose windows have all rows, the scores of a window come once the one below it is
// known, those of the last line of windows one after the other in the end: see tersense_neighbors.
// alone is read where score_ready is high, and must be that of the frame until its last score.
//
// The weights: FIRST bytes a row, with a ninth bit beside the last one where the row ends a group;
// then those of the net for 1, 2, .. GROUPS known groups, in the last one for each hidden number those
// of the window, then those of the windows around. The biases: GROUPS pointers, and where
// they point the first weight of a net, the shift of its scores, and a bias for each number.
module tersense_scores #(
    parameter COLUMNS      = 20,   // windows in a line
    parameter WINDOWS      = 300,  // of a frame
    parameter Y_BITS       = 16,
    parameter FIRST        = 10,   // rows that predict the others
    parameter GROUPS       = 13,
    parameter HIDDEN       = 16,
    parameter SUM_BITS     = 24,   // hold the sum of a group, unsigned
    parameter OPERAND_BITS = 16,   // hold a measurement, four logarithms, a hidden number; signed
    parameter ACC_BITS     = 32,   // hold every dot product; signed
    parameter BIAS_BITS    = 20,   // signed
    parameter WEIGHTS      = 9280,
    parameter BIASES       = 403,
    parameter WEIGHT_FILE  = "",
    parameter BIAS_FILE    = ""
) (
    input  wire              clk,
    input  wire              rst,

    input  wire              y_valid,
    output wire              y_ready,
    input  wire [Y_BITS-1:0] y,
    input  wire              y_last,
    input  wire              alone,        // windows do not see those around them

    output wire              score_valid,
    input  wire              score_ready,
    output reg  [11:0]       score,
    output wire              score_known,  // its step lies among the rows that came
    output wire              score_last    // of the window
);
    localparam LOGS_SEEN    = 2 * GROUPS;
    localparam MOST_TERMS   = HIDDEN > LOGS_SEEN ? (HIDDEN > FIRST ? HIDDEN : FIRST)
                                                 : (LOGS_SEEN > FIRST ? LOGS_SEEN : FIRST);
    localparam INDEX_BITS   = MOST_TERMS > 1 ? $clog2(MOST_TERMS) : 1;
    localparam PC_BITS      = $clog2(WEIGHTS);
    localparam BIAS_ADDRESS = $clog2(BIASES);
    localparam GROUP_BITS   = $clog2(GROUPS + 1);
    localparam PLACE_BITS   = $clog2(SUM_BITS);
    localparam LOG_BITS     = PLACE_BITS + 3;
    localparam SCORES       = GROUPS - 1;

    localparam [1:0] ROWS = 2'd0, LOGS = 2'd1, UNITS = 2'd2;  // regions

    localparam [3:0] TAKE = 4'd0, DOT = 4'd1, REST = 4'd2, ADD = 4'd3, LOG = 4'd4, NET = 4'd5,
                     POINT = 4'd6, BASE = 4'd7, SHIFT = 4'd8, BEGIN = 4'd9, UNIT = 4'd10,
                     DOWN = 4'd11, OFFER = 4'd12, ROWS_END = 4'd13, NEXT = 4'd14, GATHER = 4'd15;

    reg [3:0]                  state;
    reg                        final_row;
    reg [GROUP_BITS-1:0]       groups;     // that are complete
    reg [INDEX_BITS:0]         rows;       // first rows that are stored
    reg [INDEX_BITS-1:0]       number;     // hidden number or score under way
    reg signed [Y_BITS-1:0]    value;
    reg signed [ACC_BITS-1:0]  acc;
    reg signed [ACC_BITS-1:0]  rest;
    reg [SUM_BITS-1:0]         sum;
    reg [PLACE_BITS-1:0]       place;
    reg [5:0]                  shift, shifts;

    // Dot products: a term is asked for, then multiplied, then added.

    reg                            asking, multiplying, adding;
    reg [1:0]                      region;
    reg [INDEX_BITS-1:0]           index, last_index;
    reg [PC_BITS-1:0]              pc;
    wire [8:0]                     weight;
    reg signed [OPERAND_BITS-1:0]  operand;
    reg signed [OPERAND_BITS+7:0]  product;

    wire dot_done = !asking && !multiplying && !adding;

    tersense_rom #(
        .WIDTH(9), .DEPTH(WEIGHTS), .ADDRESS_BITS(PC_BITS), .FILE(WEIGHT_FILE)
    ) weight_rom (
        .clk(clk), .enable(asking), .address(pc), .data(weight)
    );

    // Rows that have not come yet are predicted with weights of zero, but what is in the RAM at
    // power-on must be a number for a simulator.
    reg signed [OPERAND_BITS-1:0] operands [0:(4 << INDEX_BITS)-1];
    integer k;
    initial for (k = 0; k < 4 << INDEX_BITS; k = k + 1) operands[k] = {OPERAND_BITS{1'b0}};

    wire signed [ACC_BITS-1:0] hidden  = acc[ACC_BITS-1] ? {ACC_BITS{1'b0}} : acc >>> 6;
    wire signed [LOG_BITS:0]   log     = {1'b0, place, sum[SUM_BITS-2 -: 3]};
    wire [ACC_BITS-1:0]        size    = rest[ACC_BITS-1] ? -rest : rest;
    wire                       leading = sum[SUM_BITS-1] || place == 0;
    wire                       store_row  = state == REST && rows != FIRST;
    wire                       store_log  = state == LOG && leading;
    wire                       store_unit = state == UNIT;
    wire                       store_around;

    wire                  there, gathered;
    wire [INDEX_BITS-1:0] seen_index;
    wire [LOG_BITS+1:0]   seen;
    wire                  full   = groups == GROUPS;
    wire                  begins = state == ROWS_END && score_ready;

    tersense_neighbors #(
        .COLUMNS(COLUMNS), .WINDOWS(WINDOWS), .GROUPS(GROUPS), .GROUP_BITS(GROUP_BITS),
        .INDEX_BITS(INDEX_BITS), .LOG_BITS(LOG_BITS)
    ) neighbors (
        .clk(clk), .rst(rst),
        .store(store_log), .group(groups), .log(log[LOG_BITS-1:0]), .keep(begins && !alone),
        .there(there), .gather(state == NEXT ? there : begins && alone && full), .alone(alone),
        .next(score_valid && score_ready && score_last && !alone),
        .valid(store_around), .index(seen_index), .value(seen), .done(gathered)
    );

    reg [INDEX_BITS+1:0]          target;
    reg signed [OPERAND_BITS-1:0] stored;
    always @*
        if (store_unit) begin
            target = {UNITS, number};
            stored = hidden[OPERAND_BITS-1:0];
        end else if (store_around) begin
            target = {LOGS, seen_index};
            stored = seen;
        end else if (store_log) begin
            target = {LOGS, {INDEX_BITS{1'b0}}} + groups;
            stored = log;
        end else begin
            target = {ROWS, rows[INDEX_BITS-1:0]};
            stored = value;
        end

    always @(posedge clk) begin
        if (asking) operand <= operands[{region, index}];
        if (store_row || store_log || store_around || store_unit) operands[target] <= stored;
    end

    // Biases; a word is there one clock after its address.

    reg [BIAS_ADDRESS-1:0]     bias_address;
    reg                        looking;
    wire signed [BIAS_BITS-1:0] bias;

    tersense_rom #(
        .WIDTH(BIAS_BITS), .DEPTH(BIASES), .ADDRESS_BITS(BIAS_ADDRESS), .FILE(BIAS_FILE)
    ) bias_rom (
        .clk(clk), .enable(1'b1), .address(bias_address), .data(bias)
    );

    // Scores: limited to 12 bits, and to the score before.

    wire signed [ACC_BITS-1:0] lowest  = -2048;
    wire signed [ACC_BITS-1:0] highest = 2046;
    wire signed [11:0] limited = acc < lowest ? 12'h800 : acc > highest ? 12'h7fe : acc[11:0];

    assign y_ready     = state == TAKE;
    assign score_valid = state == OFFER;
    assign score_known = number + 1'b1 < groups;
    assign score_last  = number == SCORES - 1;

    always @(posedge clk)
        if (rst) begin
            state       <= TAKE;
            asking      <= 1'b0;
            multiplying <= 1'b0;
            adding      <= 1'b0;
            groups      <= {GROUP_BITS{1'b0}};
            rows        <= {(INDEX_BITS+1){1'b0}};
            pc          <= {PC_BITS{1'b0}};
            sum         <= {SUM_BITS{1'b0}};
        end else begin
            multiplying <= asking;
            adding      <= multiplying;
            looking     <= 1'b0;
            if (asking) begin
                pc     <= pc + 1'b1;
                index  <= index + 1'b1;
                asking <= index != last_index;
            end
            product <= $signed(weight[7:0]) * operand;
            if (adding) acc <= acc + product;

            case (state)
                TAKE: if (y_valid) begin
                    value      <= y;
                    final_row  <= y_last;
                    acc        <= 64;  // half of what the shift drops
                    region     <= ROWS;
                    index      <= {INDEX_BITS{1'b0}};
                    last_index <= FIRST - 1;
                    asking     <= 1'b1;
                    state      <= DOT;
                end
                DOT: if (dot_done)
                    state <= region == ROWS ? REST : region == LOGS ? UNIT : DOWN;
                REST: begin
                    rest <= value - (acc >>> 7);
                    if (rows != FIRST) rows <= rows + 1'b1;
                    state <= ADD;
                end
                ADD: begin
                    sum   <= sum + size;
                    place <= SUM_BITS - 1;
                    state <= weight[8] ? LOG : final_row ? ROWS_END : TAKE;
                end
                LOG: begin  // bring the leading one to the top
                    sum   <= leading ? {SUM_BITS{1'b0}} : sum << 1;
                    place <= place - 1'b1;
                    if (leading) begin
                        groups <= groups + 1'b1;
                        state  <= final_row ? ROWS_END : TAKE;
                    end
                end
                ROWS_END: if (score_ready) state <= !alone ? NEXT : full ? GATHER : NET;
                NEXT: begin
                    state <= there ? GATHER : TAKE;
                    if (!there) begin  // everything as it was before the first row
                        groups <= {GROUP_BITS{1'b0}};
                        rows   <= {(INDEX_BITS+1){1'b0}};
                        pc     <= {PC_BITS{1'b0}};
                        sum    <= {SUM_BITS{1'b0}};
                    end
                end
                GATHER: if (gathered) state <= NET;
                NET: begin
                    bias_address <= groups - 1'b1;
                    looking      <= 1'b1;
                    number       <= {INDEX_BITS{1'b0}};
                    region       <= LOGS;
                    state        <= POINT;
                end
                POINT: if (!looking) begin
                    bias_address <= bias[BIAS_ADDRESS-1:0];
                    looking      <= 1'b1;
                    state        <= BASE;
                end
                BASE: if (!looking) begin
                    pc           <= bias[PC_BITS-1:0];
                    bias_address <= bias_address + 1'b1;
                    looking      <= 1'b1;
                    state        <= SHIFT;
                end
                SHIFT: if (!looking) begin
                    shift        <= bias[5:0];
                    bias_address <= bias_address + 1'b1;
                    looking      <= 1'b1;
                    state        <= BEGIN;
                end
                BEGIN: if (!looking) begin
                    acc          <= bias;
                    bias_address <= bias_address + 1'b1;
                    index        <= {INDEX_BITS{1'b0}};
                    last_index   <= region != LOGS ? HIDDEN - 1 : full ? LOGS_SEEN - 1 : groups - 1'b1;
                    asking       <= 1'b1;
                    shifts       <= shift;
                    state        <= DOT;
                end
                UNIT: begin
                    number <= number == HIDDEN - 1 ? {INDEX_BITS{1'b0}} : number + 1'b1;
                    region <= number == HIDDEN - 1 ? UNITS : LOGS;
                    state  <= BEGIN;
                end
                DOWN: if (shifts != 0) begin
                    acc    <= acc >>> 1;
                    shifts <= shifts - 1'b1;
                end else begin
                    if (number == 0 || limited < $signed(score)) score <= limited;
                    state <= OFFER;
                end
                OFFER: if (score_ready) begin
                    number <= number + 1'b1;
                    state  <= score_last ? NEXT : BEGIN;
                end
                default: state <= TAKE;
            endcase
        end
endmodule
