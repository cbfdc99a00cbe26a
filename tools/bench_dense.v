// What a dense 8-bit matrix costs, to compare with: MACS multipliers, weights in ROM, sums in RAM.
//
// The interface is that of the sparse encoder. Windows come one after the other, the pixels of each
// in raster order. A pixel is multiplied with the weights of all MEASUREMENTS rows, MACS at a time;
// row n*MACS + k is the k-th lane's n-th sum. MEASUREMENTS is a multiple of MACS, at least twice it.
module dense #(
    parameter WINDOW       = 32,
    parameter MEASUREMENTS = 256,
    parameter MACS         = 1,
    parameter ACC_BITS     = 27,
    parameter WEIGHT_FILE  = ""
) (
    input  wire                       clk,
    input  wire                       rst,

    input  wire                       pixel_valid,
    output wire                       pixel_ready,
    input  wire [7:0]                 pixel,

    output reg                        y_valid,
    input  wire                       y_ready,
    output wire signed [ACC_BITS-1:0] y,
    output reg                        y_last
);
    localparam PIXELS     = WINDOW * WINDOW;
    localparam TURNS      = MEASUREMENTS / MACS;      // clocks per pixel takes
    localparam TURN_BITS  = $clog2(TURNS);
    localparam PIXEL_BITS = $clog2(PIXELS);
    localparam WORDS      = PIXELS * TURNS;
    localparam WORD_BITS  = $clog2(WORDS);
    localparam MAC_BITS   = MACS > 1 ? $clog2(MACS) : 1;

    // Issue: a pixel stays on the input for all of its turns.

    wire [TURN_BITS-1:0]  turn;
    wire [PIXEL_BITS-1:0] place;
    wire                  turn_last, place_last;
    reg                   reading;
    reg [WORD_BITS-1:0]   word;

    wire issuing = pixel_valid && !reading;
    assign pixel_ready = !reading && turn_last;

    tersense_counter #(.LIMIT(TURNS)) count_turns (
        .clk(clk), .rst(rst), .step(issuing), .count(turn), .last(turn_last));
    tersense_counter #(.LIMIT(PIXELS)) count_pixels (
        .clk(clk), .rst(rst), .step(issuing && turn_last), .count(place), .last(place_last));

    wire window_last = issuing && turn_last && place_last;

    always @(posedge clk)
        if (rst || window_last) word <= {WORD_BITS{1'b0}};
        else if (issuing)       word <= word + 1'b1;

    // Decode, multiply, add: a register after each.

    wire [MACS*8-1:0]   weights;
    reg  [TURN_BITS-1:0] decode_turn, multiply_turn, add_turn;
    reg                  decode_first, multiply_first, add_first;
    reg                  decoding, multiplying, adding;
    reg  signed [8:0]    decode_pixel;

    tersense_rom #(
        .WIDTH(MACS * 8), .DEPTH(WORDS), .ADDRESS_BITS(WORD_BITS), .FILE(WEIGHT_FILE)
    ) weight_rom (
        .clk(clk), .enable(1'b1), .address(word), .data(weights)
    );

    always @(posedge clk)
        if (rst) {adding, multiplying, decoding} <= 3'b000;
        else     {adding, multiplying, decoding} <= {multiplying, decoding, issuing};

    always @(posedge clk) begin
        decode_pixel <= {1'b0, pixel};
        {add_turn, multiply_turn, decode_turn}    <= {multiply_turn, decode_turn, turn};
        {add_first, multiply_first, decode_first} <= {multiply_first, decode_first, place == 0};
    end

    // Read-out.

    reg                  ending, asking;
    reg  [MAC_BITS-1:0]  y_lane, lane;
    reg  [TURN_BITS-1:0] row;
    wire lane_last = lane == MACS - 1;
    wire row_last  = lane_last && row == TURNS - 1;
    wire move      = !y_valid || y_ready;
    wire drained   = !decoding && !multiplying && !adding;

    always @(posedge clk)
        if (rst) begin
            {reading, ending, asking, y_valid} <= 4'b0000;
        end else begin
            if (window_last)            {reading, ending} <= 2'b11;
            else if (ending && drained) {ending, asking}  <= 2'b01;
            else if (y_valid && y_ready && y_last) reading <= 1'b0;

            if (move) begin
                y_valid <= asking;
                if (asking && row_last) asking <= 1'b0;
            end
        end

    always @(posedge clk)
        if (!asking) begin
            lane <= {MAC_BITS{1'b0}};
            row  <= {TURN_BITS{1'b0}};
        end else if (move) begin
            lane <= lane_last ? {MAC_BITS{1'b0}} : lane + 1'b1;
            if (lane_last) row <= row + 1'b1;
        end

    always @(posedge clk)
        if (move) begin
            y_last <= row_last;
            y_lane <= lane;
        end

    // Lanes: the sum of a turn is loaded while its product is formed.

    wire [MACS*ACC_BITS-1:0] totals;
    wire [TURN_BITS-1:0]     load = asking ? row : multiply_turn;

    genvar k;
    generate
        for (k = 0; k < MACS; k = k + 1) begin : g_lane
            reg signed [ACC_BITS-1:0] memory [0:TURNS-1];
            reg signed [ACC_BITS-1:0] loaded;
            reg signed [7:0]          weight;
            reg signed [8:0]          factor;
            reg signed [16:0]         product;
            wire signed [ACC_BITS-1:0] base = add_first ? {ACC_BITS{1'b0}} : loaded;

            always @(posedge clk) begin
                weight  <= weights[8*k +: 8];
                factor  <= decode_pixel;
                product <= weight * factor;
                if (multiplying || (asking && move)) loaded <= memory[load];
                if (adding) memory[add_turn] <= base + product;
            end
            assign totals[k*ACC_BITS +: ACC_BITS] = loaded;
        end
    endgenerate

    reg signed [ACC_BITS-1:0] chosen;
    integer n;
    always @* begin
        chosen = totals[0 +: ACC_BITS];
        for (n = 1; n < MACS; n = n + 1)
            if (y_lane == n) chosen = totals[n*ACC_BITS +: ACC_BITS];
    end
    assign y = chosen;
endmodule
