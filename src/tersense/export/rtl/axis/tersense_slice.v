// Register slice: takes and gives a beat at every clock, and no output depends on an input at the
// same clock, as AXI asks. Two beats fit; the second is what came when the receiver had just stopped.
module tersense_slice #(
    parameter BITS = 8
) (
    input  wire            clk,
    input  wire            rst,

    input  wire            in_valid,
    output reg             in_ready,
    input  wire [BITS-1:0] in,

    output reg             out_valid,
    input  wire            out_ready,
    output reg  [BITS-1:0] out
);
    reg            spare_valid;
    reg [BITS-1:0] spare;

    wire take = in_valid && in_ready;
    wire move = !out_valid || out_ready;

    always @(posedge clk)
        if (rst) begin
            in_ready    <= 1'b0;  // nothing is taken while the reset lasts
            out_valid   <= 1'b0;
            spare_valid <= 1'b0;
        end else if (move) begin
            in_ready    <= 1'b1;
            out_valid   <= take || spare_valid;
            spare_valid <= 1'b0;
        end else begin
            in_ready    <= !(take || spare_valid);
            spare_valid <= take || spare_valid;
        end

    always @(posedge clk) begin
        if (move) out   <= spare_valid ? spare : in;
        if (take) spare <= in;
    end
endmodule
