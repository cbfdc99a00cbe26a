// Run images through the encoder with random stalls on both ports, and check every measurement.
//
//     iverilog -g2005 -o sim *.v && vvp sim [+stall=PERCENT] [+seed=NUMBER] [+out=FILE]
//
// Prints PASS or FAIL. With +out the measurements are also written, one per line.
module testbench;
    `include "test_sizes.vh"

    reg [PIXEL_BITS-1:0] pixels  [0:PIXELS-1];
    reg [Y_BITS-1:0]     results [0:RESULTS-1];

    reg                     clk = 1'b0;
    reg                     rst = 1'b1;
    reg                     pixel_valid = 1'b0;
    wire                    pixel_ready;
    reg  [PIXEL_BITS-1:0]   pixel;
    wire                    y_valid;
    reg                     y_ready = 1'b0;
    wire signed [Y_BITS-1:0] y;
    wire                    y_last;

    encoder #(.WIDTH(WIDTH), .HEIGHT(HEIGHT)) dut (
        .clk(clk), .rst(rst),
        .pixel_valid(pixel_valid), .pixel_ready(pixel_ready), .pixel(pixel),
        .y_valid(y_valid), .y_ready(y_ready), .y(y), .y_last(y_last)
    );

    integer stall = 50, seed = 1, file = 0;
    integer sent = 0, received = 0, errors = 0, clocks = 0, silence = 0;
    reg [8*256-1:0] name;
    reg             held;
    reg [Y_BITS:0]  held_y;

    function stalls(input integer percent);
        stalls = $unsigned($random(seed)) % 100 < percent;
    endfunction

    always #5 clk = ~clk;

    initial begin
        $readmemh("test_pixels.mem", pixels);
        $readmemh("test_results.mem", results);
        if ($value$plusargs("stall=%d", stall)) ;
        if ($value$plusargs("seed=%d", seed)) ;
        if ($value$plusargs("out=%s", name)) file = $fopen(name, "w");
        held = 1'b0;
        repeat (3) @(posedge clk);
        rst <= 1'b0;
    end

    // A pixel that was offered stays until it is taken.
    always @(posedge clk)
        if (!rst && (!pixel_valid || pixel_ready)) begin
            if (sent < PIXELS && !stalls(stall)) begin
                pixel_valid <= 1'b1;
                pixel       <= pixels[sent];
                sent        = sent + 1;
            end else begin
                pixel_valid <= 1'b0;
                pixel       <= {PIXEL_BITS{1'bx}};
            end
        end

    always @(posedge clk) begin
        y_ready <= !stalls(stall);
        clocks  = clocks + !rst;
        silence = silence + 1;

        if (held && {y_last, y} !== held_y) fail("a measurement changed before it was taken");
        held   = !rst && y_valid && !y_ready;
        held_y = {y_last, y};

        if (!rst && y_valid === 1'bx) fail("y_valid is unknown");
        if (!rst && y_valid && y_ready) begin
            silence = 0;
            if (file != 0) $fdisplay(file, "%0d", y);
            if (received >= RESULTS) fail("too many measurements");
            else if (y !== results[received]) fail("wrong measurement");
            if (y_last !== (received % MEASUREMENTS == MEASUREMENTS - 1)) fail("wrong y_last");
            received = received + 1;
        end

        if (silence > (received < RESULTS ? PATIENCE : 1000)) begin
            if (received != RESULTS || sent != PIXELS) fail("measurements are missing");
            if (errors == 0) $display("PASS: %0d measurements, %0d clocks", received,
                                       clocks - silence);
            else             $display("FAIL: %0d errors", errors);
            $finish;
        end
    end

    task fail(input [8*48-1:0] reason);
        begin
            errors = errors + 1;
            if (errors <= 10)
                $display("clock %0d, measurement %0d: %0s (%0d)", clocks, received, reason, y);
        end
    endtask
endmodule
