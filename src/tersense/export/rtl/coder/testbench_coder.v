// Run images through the coder with random stalls on all ports, and check every byte.
//
//     iverilog -g2005 -o sim *.v ../tersense_rom.v && vvp sim [+stall=PERCENT] [+seed=NUMBER]
//
// Prints PASS or FAIL.
module testbench_coder;
    `include "test_sizes.vh"

    reg [BITS-1:0] values [0:VALUES-1];
    reg [15:0]     counts [0:WINDOWS-1];  // of all images
    reg [8:0]      bytes  [0:BYTES-1];    // {last of its image, byte}

    reg             clk = 1'b0;
    reg             rst = 1'b1;
    reg             y_valid = 1'b0;
    wire            y_ready;
    reg  [BITS-1:0] y;
    reg             y_last;
    wire            byte_valid;
    reg             byte_ready = 1'b0;
    wire [7:0]      byte_out;
    wire            byte_last;

`ifdef COUNTED
    reg                   count_valid = 1'b0;
    wire                  count_ready;
    reg  [COUNT_BITS-1:0] count;
`endif

    integer stall = 50, seed = 1;
    integer sent = 0, window = 0, row = 0, counted = 0;  // on the way in
    integer received = 0, errors = 0, clocks = 0, silence = 0;
    reg       held;
    reg [8:0] held_byte;

    coder #(.WIDTH(WIDTH), .HEIGHT(HEIGHT)) dut (
        .clk(clk), .rst(rst),
`ifdef COUNTED
        .count_valid(count_valid), .count_ready(count_ready), .count(count),
`endif
        .y_valid(y_valid), .y_ready(y_ready), .y(y), .y_last(y_last),
        .byte_valid(byte_valid), .byte_ready(byte_ready), .byte_out(byte_out),
        .byte_last(byte_last)
    );

    function stalls(input integer percent);
        stalls = $unsigned($random(seed)) % 100 < percent;
    endfunction

    always #5 clk = ~clk;

    initial begin
        $readmemh("test_values.mem", values);
        $readmemh("test_counts.mem", counts);
        $readmemh("test_bytes.mem", bytes);
        if ($value$plusargs("stall=%d", stall)) ;
        if ($value$plusargs("seed=%d", seed)) ;
        held = 1'b0;
        repeat (3) @(posedge clk);
        rst <= 1'b0;
    end

    // A value that was offered stays until it is taken.
    always @(posedge clk)
        if (!rst && (!y_valid || y_ready)) begin
            if (sent < VALUES && !stalls(stall)) begin
                while (counts[window] == 0) window = window + 1;
                y_valid <= 1'b1;
                y       <= values[sent];
                y_last  <= row == counts[window] - 1;
                sent    = sent + 1;
                row     = row + 1;
                if (row == counts[window]) begin
                    row    = 0;
                    window = window + 1;
                end
            end else begin
                y_valid <= 1'b0;
                y       <= {BITS{1'bx}};
                y_last  <= 1'bx;
            end
        end

`ifdef COUNTED
    always @(posedge clk)
        if (!rst && (!count_valid || count_ready)) begin
            if (counted < WINDOWS && !stalls(stall)) begin
                count_valid <= 1'b1;
                count       <= counts[counted][COUNT_BITS-1:0];
                counted     = counted + 1;
            end else begin
                count_valid <= 1'b0;
                count       <= {COUNT_BITS{1'bx}};
            end
        end
`endif

    always @(posedge clk) begin
        byte_ready <= !stalls(stall);
        clocks  = clocks + !rst;
        silence = silence + 1;

        if (held && {byte_last, byte_out} !== held_byte) fail("a byte changed before it was taken");
        held      = !rst && byte_valid && !byte_ready;
        held_byte = {byte_last, byte_out};

        if (!rst && byte_valid === 1'bx) fail("byte_valid is unknown");
        if (!rst && byte_valid && byte_ready) begin
            silence = 0;
            if (received >= BYTES) fail("too many bytes");
            else if ({byte_last, byte_out} !== bytes[received]) fail("wrong byte");
            received = received + 1;
        end

        if (silence > (received < BYTES ? 10000 : 1000)) begin
            if (received != BYTES || sent != VALUES) fail("bytes are missing");
            if (errors == 0) $display("PASS: %0d values, %0d bytes, %0d clocks", sent, received,
                                       clocks - silence);
            else             $display("FAIL: %0d errors", errors);
            $finish;
        end
    end

    task fail(input [8*48-1:0] reason);
        begin
            errors = errors + 1;
            if (errors <= 10)
                $display("clock %0d, byte %0d: %0s (%h)", clocks, received, reason, byte_out);
        end
    endtask
endmodule
