// Read-only memory with a registered output, held while enable is low: maps to block RAM.
module tersense_rom #(
    parameter WIDTH        = 8,
    parameter DEPTH        = 256,
    parameter ADDRESS_BITS = 8,
    parameter FILE         = ""
) (
    input  wire                    clk,
    input  wire                    enable,
    input  wire [ADDRESS_BITS-1:0] address,
    output reg  [WIDTH-1:0]        data
);
    reg [WIDTH-1:0] memory [0:DEPTH-1];
    initial if (FILE != "") $readmemh(FILE, memory);

    always @(posedge clk)
        if (enable) data <= memory[address];
endmodule
