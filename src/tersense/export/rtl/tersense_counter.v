// One wheel of an odometer: counts 0, 1, .. LIMIT-1, 0, ..
module tersense_counter #(
    parameter LIMIT = 2,
    parameter BITS  = LIMIT > 1 ? $clog2(LIMIT) : 1  // derived
) (
    input  wire            clk,
    input  wire            rst,
    input  wire            step,
    output wire [BITS-1:0] count,
    output wire            last   // the next step brings it back to zero
);
    generate
        if (LIMIT == 1) begin : g_fixed
            assign count = {BITS{1'b0}};
            assign last  = 1'b1;
        end else begin : g_turning
            reg [BITS-1:0] value;
            assign count = value;
            assign last  = (value == LIMIT - 1);
            always @(posedge clk)
                if (rst)       value <= {BITS{1'b0}};
                else if (step) value <= last ? {BITS{1'b0}} : value + 1'b1;
        end
    endgenerate
endmodule
