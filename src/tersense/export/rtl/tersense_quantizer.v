// Round measurements to codes: clip(floor(y/step + 1/2), LOW/step .. HIGH/step), three clocks later.
//
//     clip and add BIAS, so that nothing is negative --> times FACTOR --> shift, minus ZERO
//
// FACTOR / 2^SHIFT stands for 1 / step, near enough that no quotient of a value that can come is
// wrong (tersense/export/arithmetic.py has the proof); for a power of two FACTOR is 1, and nothing is
// multiplied. While the output waits, all stages do.
module tersense_quantizer #(
    parameter ACC_BITS    = 16,
    parameter CODE_BITS   = 8,
    parameter [31:0] LOW  = -32'd127,  // two's complement; beyond, the code stays the same
    parameter [31:0] HIGH = 32'd127,
    parameter [32:0] BIAS = 33'd127,
    parameter SUM_BITS    = 8,         // hold a clipped measurement plus BIAS
    parameter FACTOR_BITS = 1,
    parameter [FACTOR_BITS-1:0] FACTOR = 1,
    parameter SHIFT       = 0,
    parameter [31:0] ZERO = 32'd127    // the quotient of code 0
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
    localparam PRODUCT_BITS = SUM_BITS + FACTOR_BITS;

    reg                    summed, multiplied;
    reg                    summed_last, multiplied_last;
    reg [SUM_BITS-1:0]     sum;
    reg [PRODUCT_BITS-1:0] product;

    wire move = !code_valid || code_ready;
    assign y_ready = move;

    // Two bits more than any measurement has, so that sums with BIAS fit.
    wire signed [33:0] wide    = $signed(y);
    wire signed [33:0] lowest  = $signed(LOW);
    wire signed [33:0] highest = $signed(HIGH);
    wire signed [33:0] clipped = wide < lowest ? lowest : wide > highest ? highest : wide;
    wire [33:0]        biased  = clipped + {1'b0, BIAS};

    wire [PRODUCT_BITS-1:0] quotient = product >> SHIFT;
    wire [PRODUCT_BITS+31:0] difference = {32'd0, quotient} - {{PRODUCT_BITS{1'b0}}, ZERO};

    always @(posedge clk)
        if (rst)
            {code_valid, multiplied, summed} <= 3'b000;
        else if (move)
            {code_valid, multiplied, summed} <= {multiplied, summed, y_valid};

    always @(posedge clk)
        if (move) begin
            {code_last, multiplied_last, summed_last} <= {multiplied_last, summed_last, y_last};
            sum     <= biased[SUM_BITS-1:0];
            product <= sum * FACTOR;
            code    <= difference[CODE_BITS-1:0];
        end
endmodule
