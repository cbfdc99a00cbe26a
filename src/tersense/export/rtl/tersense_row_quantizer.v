// Round measurements to codes with a middle and a step for each row of the matrix, four clocks
// later: clip(floor((y - middle)/step + 1/2), -LARGEST .. LARGEST), LARGEST = 2^(CODE_BITS-1) - 1.
//
//     row --> middle, --> minus middle, clip and --> times factor --> shift, minus LARGEST
//             step,       add a bias so that
//             factor      nothing is negative
//            (memory)
//
// factor / 2^SHIFT stands for 1 / step, near enough that no quotient of a value that can come is
// wrong (tersense/export/arithmetic.py has the proof). Rows come in their order; y_last marks the
// last one of a window. While the output waits, all stages do.
module tersense_row_quantizer #(
    parameter ROWS        = 256,
    parameter ACC_BITS    = 16,
    parameter CODE_BITS   = 8,
    parameter STEP_BITS   = 8,
    parameter MIDDLE_BITS = 16,        // two's complement
    parameter SUM_BITS    = 16,        // hold a clipped measurement plus its bias
    parameter FACTOR_BITS = 8,
    parameter SHIFT       = 8,
    parameter STEP_FILE   = ""         // {middle, factor, step} of each row
) (
    input  wire                 clk,
    input  wire                 rst,

    input  wire                 y_valid,
    output wire                 y_ready,
    input  wire [ACC_BITS-1:0]  y,
    input  wire                 y_last,

    output reg                  code_valid,
    input  wire                 code_ready,
    output reg  [CODE_BITS-1:0] code,
    output reg                  code_last
);
    localparam ROW_BITS     = ROWS > 1 ? $clog2(ROWS) : 1;
    localparam REACH_BITS   = STEP_BITS + CODE_BITS - 1;
    localparam INPUT_BITS   = MIDDLE_BITS > ACC_BITS ? MIDDLE_BITS : ACC_BITS;
    localparam WIDE_BITS    = (REACH_BITS > INPUT_BITS ? REACH_BITS : INPUT_BITS) + 2;
    localparam PRODUCT_BITS = SUM_BITS + FACTOR_BITS;
    localparam [CODE_BITS-1:0] LARGEST = {1'b0, {(CODE_BITS-1){1'b1}}};

    wire move = !code_valid || code_ready;
    assign y_ready = move;

    // The row of the measurement that comes next, and what belongs to it.

    reg  [ROW_BITS-1:0]    row;
    wire [STEP_BITS-1:0]   step;
    wire [FACTOR_BITS-1:0] factor;
    wire [MIDDLE_BITS-1:0] middle;

    always @(posedge clk)
        if (rst)
            row <= {ROW_BITS{1'b0}};
        else if (y_valid && move)
            row <= y_last ? {ROW_BITS{1'b0}} : row + 1'b1;

    tersense_rom #(
        .WIDTH(MIDDLE_BITS + FACTOR_BITS + STEP_BITS), .DEPTH(ROWS), .ADDRESS_BITS(ROW_BITS),
        .FILE(STEP_FILE)
    ) step_rom (
        .clk(clk), .enable(move), .address(row), .data({middle, factor, step})
    );

    // Stages.

    reg                    held, summed, multiplied;
    reg                    held_last, summed_last, multiplied_last;
    reg [ACC_BITS-1:0]     value;
    reg [SUM_BITS-1:0]     sum;
    reg [FACTOR_BITS-1:0]  sum_factor;
    reg [PRODUCT_BITS-1:0] product;

    wire [WIDE_BITS-1:0]        one     = {{(WIDE_BITS-STEP_BITS){1'b0}}, step};
    wire signed [WIDE_BITS-1:0] highest = (one << (CODE_BITS - 1)) - one;  // step * LARGEST
    wire signed [WIDE_BITS-1:0] lowest  = -highest;
    wire signed [WIDE_BITS-1:0] place   = $signed(middle);
    wire signed [WIDE_BITS-1:0] exact   = $signed(value);
    wire signed [WIDE_BITS-1:0] wide    = exact - place;
    wire signed [WIDE_BITS-1:0] clipped = wide < lowest ? lowest : wide > highest ? highest : wide;
    wire [WIDE_BITS-1:0]        biased  = clipped + highest + $signed(one >> 1);

    wire [PRODUCT_BITS-1:0]           quotient   = product >> SHIFT;
    wire [PRODUCT_BITS+CODE_BITS-1:0] difference =
        {{CODE_BITS{1'b0}}, quotient} - {{PRODUCT_BITS{1'b0}}, LARGEST};

    always @(posedge clk)
        if (rst)
            {code_valid, multiplied, summed, held} <= 4'b0000;
        else if (move)
            {code_valid, multiplied, summed, held} <= {multiplied, summed, held, y_valid};

    always @(posedge clk)
        if (move) begin
            {code_last, multiplied_last, summed_last, held_last} <=
                {multiplied_last, summed_last, held_last, y_last};
            value      <= y;
            sum        <= biased[SUM_BITS-1:0];
            sum_factor <= factor;
            product    <= sum * sum_factor;
            code       <= difference[CODE_BITS-1:0];
        end
endmodule
