// Run frames through the decider with random stalls on both ports, and check every score and count.
//
//     iverilog -g2005 -o sim *.v ../tersense_rom.v && vvp sim [+stall=PERCENT] [+seed=NUMBER]
//
// Prints PASS or FAIL.
module testbench_decider;
    `include "test_sizes.vh"

    reg [Y_BITS-1:0]      values [0:VALUES-1];
    reg [COUNT_BITS-1:0]  known  [0:FRAMES*WINDOWS-1];
    reg [31:0]            orders [0:3*FRAMES-1];  // taken, whole and budget of each frame
    reg [11:0]            scores [0:SCORES-1];
    reg [COUNT_BITS-1:0]  counts [0:FRAMES*WINDOWS-1];

    reg                   clk = 1'b0;
    reg                   rst = 1'b1;
    reg                   y_valid = 1'b0;
    wire                  y_ready;
    reg  [Y_BITS-1:0]     y;
    reg                   y_last;
    wire                  count_valid;
    reg                   count_ready = 1'b0;
    wire [COUNT_BITS-1:0] count;
    wire                  count_last;

    integer stall = 50, seed = 1;
    integer window = 0, row = 0, sent = 0;                       // on the way in
    integer scored = 0, received = 0, errors = 0, clocks = 0, silence = 0;
    reg                  held;
    reg [COUNT_BITS:0]   held_count;

    decider #(.WIDTH(WIDTH), .HEIGHT(HEIGHT)) dut (
        .clk(clk), .rst(rst),
        .budget(orders[3*(received/WINDOWS)+2][BUDGET_BITS-1:0]),
        .whole(orders[3*(received/WINDOWS)+1][0]),
        .taken(orders[3*(received/WINDOWS)][0]),
        .y_valid(y_valid), .y_ready(y_ready), .y(y), .y_last(y_last),
        .count_valid(count_valid), .count_ready(count_ready), .count(count),
        .count_last(count_last)
    );

    function stalls(input integer percent);
        stalls = $unsigned($random(seed)) % 100 < percent;
    endfunction

    always #5 clk = ~clk;

    initial begin
        $readmemh("test_values.mem", values);
        $readmemh("test_known.mem", known);
        $readmemh("test_orders.mem", orders);
        $readmemh("test_scores.mem", scores);
        $readmemh("test_counts.mem", counts);
        if ($value$plusargs("stall=%d", stall)) ;
        if ($value$plusargs("seed=%d", seed)) ;
        held = 1'b0;
        repeat (3) @(posedge clk);
        rst <= 1'b0;
    end

    // A measurement that was offered stays until it is taken.
    always @(posedge clk)
        if (!rst && (!y_valid || y_ready)) begin
            if (sent < VALUES && !stalls(stall)) begin
                y_valid <= 1'b1;
                y       <= values[sent];
                y_last  <= row == known[window] - 1;
                sent    = sent + 1;
                row     = row + 1;
                if (row == known[window]) begin
                    row    = 0;
                    window = window + 1;
                end
            end else begin
                y_valid <= 1'b0;
                y       <= {Y_BITS{1'bx}};
                y_last  <= 1'bx;
            end
        end

`ifndef NETLIST
    always @(posedge clk)
        if (!rst && dut.score_valid && dut.score_ready) begin
            if (dut.score !== scores[scored]) fail("wrong score");
            if (dut.score_last !== (scored % STEPS == STEPS - 1)) fail("wrong score_last");
            scored = scored + 1;
        end
`endif

    always @(posedge clk) begin
        count_ready <= !stalls(stall);
        clocks  = clocks + !rst;
        silence = silence + 1;

        if (held && {count_last, count} !== held_count) fail("a count changed before it was taken");
        held       = !rst && count_valid && !count_ready;
        held_count = {count_last, count};

        if (!rst && count_valid === 1'bx) fail("count_valid is unknown");
        if (!rst && count_valid && count_ready) begin
            silence = 0;
            if (received >= FRAMES * WINDOWS) fail("too many counts");
            else if (count !== counts[received]) fail("wrong count");
            if (count_last !== (received % WINDOWS == WINDOWS - 1)) fail("wrong count_last");
            received = received + 1;
        end

        if (silence > (received < FRAMES * WINDOWS ? PATIENCE : 1000)) begin
            if (received != FRAMES * WINDOWS || sent != VALUES) fail("counts are missing");
            if (errors == 0) $display("PASS: %0d frames, %0d windows, %0d clocks", FRAMES, received,
                                       clocks - silence);
            else             $display("FAIL: %0d errors", errors);
            $finish;
        end
    end

    task fail(input [8*48-1:0] reason);
        begin
            errors = errors + 1;
            if (errors <= 10)
                $display("clock %0d, window %0d: %0s (%0d)", clocks, received, reason, count);
        end
    endtask
endmodule
