// One adder and its bank of accumulators.
//
// A step adds a pixel to one accumulator, or subtracts it, in two stages:
//
//     read    the accumulator is read from RAM at the clock that ends this stage
//     add     the sum is formed, and written at the clock that ends this stage
//
// so a step can start at every clock. A step that follows another one to the same accumulator
// reads the RAM at the very clock at which that one writes: it takes the sum directly instead.
// The first step of a window to an accumulator starts from zero, so nothing is ever cleared.
module tersense_lane #(
    parameter ACC_BITS     = 16,
    parameter DEPTH        = 256,
    parameter ADDRESS_BITS = 8
) (
    input  wire                    clk,
    input  wire                    step,
    input  wire                    first,       // start from zero
    input  wire                    subtract,
    input  wire [ADDRESS_BITS-1:0] address,     // of the accumulator
    input  wire signed [8:0]       pixel,
    input  wire signed [8:0]       negative,    // the same pixel times -1
    input  wire                    read,        // read out: never together with, or one clock
    output wire [ACC_BITS-1:0]     total        // after, a step; held until the next read
);
    reg [ACC_BITS-1:0] memory [0:DEPTH-1];

    reg                       writing;
    reg                       starting;
    reg                       repeated;         // the sum of the step before is not in RAM yet
    reg    [ADDRESS_BITS-1:0] target;
    reg signed          [8:0] operand;
    reg        [ACC_BITS-1:0] stored;
    reg        [ACC_BITS-1:0] previous;

    wire       [ACC_BITS-1:0] base   = starting ? {ACC_BITS{1'b0}} : repeated ? previous : stored;
    wire signed [ACC_BITS-1:0] addend = operand; // sign-extended
    wire       [ACC_BITS-1:0] sum    = base + addend;

    wire collides = step && writing && (address == target);

    always @(posedge clk) begin
        writing  <= step;
        starting <= first;
        repeated <= collides;
        target   <= address;
        operand  <= subtract ? negative : pixel;
        previous <= sum;
    end

    always @(posedge clk) begin
        if (step || read) stored <= memory[address];
        if (writing) memory[target] <= sum;
    end

    assign total = stored;
endmodule
