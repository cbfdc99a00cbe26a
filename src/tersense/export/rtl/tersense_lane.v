// One adder and its bank of accumulators.
//
// A step adds a pixel to one accumulator, or subtracts it, in two stages:
//
//     load    the accumulator is read from RAM at the clock that ends this stage
//     add     the sum is formed, and written at the clock that ends this stage
//
// so a step can begin at every clock. A step that follows another one to the same accumulator
// loads it at the very clock at which that one writes it; then RAM gives anything, and the sum is
// taken from the adder instead. The first step of a window to an accumulator starts from zero, so
// nothing is ever cleared.
module tersense_lane #(
    parameter PIXEL_BITS   = 8,
    parameter ACC_BITS     = 16,
    parameter DEPTH        = 256,
    parameter ADDRESS_BITS = 8
) (
    input  wire                       clk,
    input  wire [ADDRESS_BITS-1:0]    address,   // of the accumulator, to step or to read

    input  wire                       step,
    input  wire                       first,     // start from zero
    input  wire                       subtract,
    input  wire signed [PIXEL_BITS:0] positive,  // the pixel
    input  wire signed [PIXEL_BITS:0] negative,  // the pixel times -1

    input  wire                       read,      // at least two clocks after the last step
    output wire [ACC_BITS-1:0]        total      // one clock later, until the next read or step
);
    reg [ACC_BITS-1:0]        memory [0:DEPTH-1];

    reg                       adding, starting, repeated;
    reg [ADDRESS_BITS-1:0]    target;
    reg signed [PIXEL_BITS:0] operand;
    reg [ACC_BITS-1:0]        loaded, previous;

    wire [ACC_BITS-1:0]        base   = starting ? {ACC_BITS{1'b0}} : repeated ? previous : loaded;
    wire signed [ACC_BITS-1:0] addend = operand;  // with its sign extended
    wire [ACC_BITS-1:0]        sum    = base + addend;

    wire collision = adding && address == target;

    always @(posedge clk) begin
        adding   <= step;
        starting <= first;
        repeated <= collision;
        target   <= address;
        operand  <= subtract ? negative : positive;
        previous <= sum;
    end

    // That a collision may give anything makes the RAM of some FPGAs smaller. Yosys takes the hint,
    // and simulation shows whether it is true; to other tools it might hide the RAM.
`ifdef YOSYS
    `define TERSENSE_ANY_ON_COLLISION
`endif
`ifdef __ICARUS__
    `define TERSENSE_ANY_ON_COLLISION
`endif
    always @(posedge clk) begin
        if (step || read) begin
            loaded <= memory[address];
`ifdef TERSENSE_ANY_ON_COLLISION
            if (collision) loaded <= {ACC_BITS{1'bx}};
`endif
        end
        if (adding) memory[target] <= sum;
    end

    assign total = loaded;
endmodule
