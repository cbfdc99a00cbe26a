// Run frames through encoder_axis with random stalls on both sides, and check every beat.
//
//     iverilog -g2005 -s testbench_axis -I axis -o sim_axis *.v axis/*.v
//     vvp sim_axis [+stall=PERCENT] [+seed=NUMBER] [+rounds=NUMBER]
//
// Some frames break the convention: cut by the next one, with lines too short or too long, with
// pixels before the first. Each round sends all of them, with other stalls. Prints PASS or FAIL.
module testbench_axis;
    `include "axis_sizes.vh"

    reg [IN_BITS+1:0]  beats   [0:BEATS-1];    // {TUSER, TLAST, TDATA}
    reg [OUT_BITS+2:0] results [0:RESULTS-1];  // {TUSER[1:0], TLAST, TDATA}

    reg                 aclk = 1'b0;
    reg                 aresetn = 1'b0;
    reg                 s_tvalid = 1'b0;
    wire                s_tready;
    reg  [IN_BITS-1:0]  s_tdata;
    reg                 s_tlast, s_tuser;
    wire                m_tvalid;
    reg                 m_tready = 1'b0;
    wire [OUT_BITS-1:0] m_tdata;
    wire                m_tlast;
    wire [1:0]          m_tuser;
    wire                irregular;

    encoder_axis #(.WIDTH(WIDTH), .HEIGHT(HEIGHT)) dut (
        .aclk(aclk), .aresetn(aresetn),
        .s_axis_tvalid(s_tvalid), .s_axis_tready(s_tready), .s_axis_tdata(s_tdata),
        .s_axis_tlast(s_tlast), .s_axis_tuser(s_tuser),
        .m_axis_tvalid(m_tvalid), .m_axis_tready(m_tready), .m_axis_tdata(m_tdata),
        .m_axis_tlast(m_tlast), .m_axis_tuser(m_tuser),
        .irregular(irregular)
    );

    integer stall = 50, seed = 1, rounds = 1;
    integer sent = 0, received = 0, frames = 0, broken = 0, errors = 0, clocks = 0, silence = 0;
    integer slow_in = 0, slow_out = 0;  // in percent, drawn anew from time to time
    reg                held = 1'b0;
    reg [OUT_BITS+2:0] held_beat;
    wire [OUT_BITS+2:0] beat = {m_tuser, m_tlast, m_tdata};

    function stalls(input integer percent);
        stalls = $unsigned($random(seed)) % 100 < percent;
    endfunction

    always #5 aclk = ~aclk;

    initial begin
        $readmemh("axis/axis_beats.mem", beats);
        $readmemh("axis/axis_results.mem", results);
        if ($value$plusargs("stall=%d", stall)) ;
        if ($value$plusargs("seed=%d", seed)) ;
        if ($value$plusargs("rounds=%d", rounds)) ;
        slow_in  = stall;
        slow_out = stall;
        repeat (3) @(posedge aclk);
        aresetn <= 1'b1;
    end

    // Either side may be slow, or fast, for a while.
    always @(posedge aclk)
        if (stall != 0 && $unsigned($random(seed)) % 200 == 0) begin
            slow_in  = stalls(stall) ? 90 : stalls(50) ? 0 : stall;
            slow_out = stalls(stall) ? 90 : stalls(50) ? 0 : stall;
        end

    // A beat that was offered stays until it is taken.
    always @(posedge aclk)
        if (aresetn && (!s_tvalid || s_tready)) begin
            if (sent < BEATS * rounds && !stalls(slow_in)) begin
                s_tvalid <= 1'b1;
                {s_tuser, s_tlast, s_tdata} <= beats[sent % BEATS];
                sent = sent + 1;
            end else begin
                s_tvalid <= 1'b0;
                {s_tuser, s_tlast, s_tdata} <= {(IN_BITS + 2){1'bx}};
            end
        end

    always @(posedge aclk) begin
        m_tready <= !stalls(slow_out);
        clocks   = clocks + aresetn;
        silence  = silence + 1;

        if (held && (m_tvalid !== 1'b1 || beat !== held_beat)) fail("a beat changed");
        held      = aresetn && m_tvalid === 1'b1 && !m_tready;
        held_beat = beat;

        if (clocks > 2 && (m_tvalid === 1'bx || s_tready === 1'bx)) fail("a handshake is unknown");
        if (clocks > 2 && m_tvalid && m_tready) begin
            silence = 0;
            if (received >= RESULTS * rounds) fail("too many beats");
            else if (beat !== results[received % RESULTS]) fail("wrong beat");
            received = received + 1;
            frames   = frames + m_tlast;
            broken   = broken + m_tuser[1];
        end

        if (silence > (received < RESULTS * rounds ? PATIENCE : 1000)) begin
            if (received != RESULTS * rounds || sent != BEATS * rounds) fail("beats are missing");
            if (errors == 0)
                $display("PASS: %0d frames (%0d broken), %0d measurements, %0d clocks", frames,
                         broken, received, clocks - silence);
            else
                $display("FAIL: %0d errors", errors);
            $finish;
        end
    end

    task fail(input [8*48-1:0] reason);
        begin
            errors = errors + 1;
            if (errors <= 10)
                $display("clock %0d, beat %0d: %0s (%h)", clocks, received, reason, beat);
        end
    endtask
endmodule
