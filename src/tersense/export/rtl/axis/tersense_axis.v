// From AXI4-Stream Video to the ports of the encoder and back to AXI4-Stream.
//
// Beats come in as AXI4-Stream Video has them: TUSER with the first pixel of a frame, TLAST with the
// last one of each line. Every frame that begins goes out whole, MEASUREMENTS of every window, TUSER[0]
// with its first one and TLAST with its last, whatever came in:
//
//     SOF in the middle of a frame    the rest of the old frame is black; the new one waits
//     TLAST too early                 the rest of the line is black
//     no TLAST where a line ends      what comes until TLAST, or SOF, is dropped
//     pixels where SOF should be      dropped
//
// TUSER[1] with the last measurement says that the frame was broken; `irregular` is high for a clock
// whenever something was.
module tersense_axis #(
    parameter WIDTH      = 640,
    parameter HEIGHT     = 480,
    parameter STRIDE     = 32,
    parameter PIXEL_BITS = 8,
    parameter Y_BITS     = 16,
    parameter IN_BITS    = 8,    // of TDATA: whole bytes, the pixel in the lowest bits
    parameter OUT_BITS   = 16    // of TDATA: whole bytes, the sign extended
) (
    input  wire                  clk,
    input  wire                  rst,

    input  wire                  s_tvalid,
    output wire                  s_tready,
    input  wire [IN_BITS-1:0]    s_tdata,
    input  wire                  s_tlast,
    input  wire                  s_tuser,

    output wire                  m_tvalid,
    input  wire                  m_tready,
    output wire [OUT_BITS-1:0]   m_tdata,
    output wire                  m_tlast,
    output wire [1:0]            m_tuser,

    output reg                   irregular,

    output wire                  pixel_valid,
    input  wire                  pixel_ready,
    output wire [PIXEL_BITS-1:0] pixel,

    input  wire                  y_valid,
    output wire                  y_ready,
    input  wire [Y_BITS-1:0]     y,
    input  wire                  y_last
);
    // Pixels.

    wire                  valid, ready, sof, eol;
    wire [PIXEL_BITS-1:0] data;

    tersense_slice #(.BITS(PIXEL_BITS + 2)) slice_in (
        .clk(clk), .rst(rst),
        .in_valid(s_tvalid), .in_ready(s_tready),
        .in({s_tuser, s_tlast, s_tdata[PIXEL_BITS-1:0]}),
        .out_valid(valid), .out_ready(ready), .out({sof, eol, data})
    );

    localparam X_BITS = WIDTH > 1 ? $clog2(WIDTH) : 1;
    localparam Y_COUNT_BITS = HEIGHT > 1 ? $clog2(HEIGHT) : 1;

    wire [X_BITS-1:0]       x;
    wire [Y_COUNT_BITS-1:0] line;
    wire                    x_last, line_last;
    reg                     filling_line, filling_frame;  // with black
    reg                     skipping;                     // what a line has too much
    reg                     broken;                       // the frame that comes in
    reg                     leaving, leaving_broken;      // a frame is in, and not yet out

    wire begins  = x == 0 && line == 0;
    wire ends    = x_last && line_last;
    wire filling = filling_line || filling_frame;
    wire belongs = valid && !filling && !skipping && sof == begins;
    wire strays  = valid && !filling && !sof && (skipping || begins);
    wire cut     = valid && !filling && sof && !begins;

    // A frame has left before the next one is complete, so that one flag is enough for both.
    wire offered = (belongs || filling) && !(ends && leaving);
    wire step    = offered && pixel_ready;

    assign pixel_valid = offered;
    assign pixel       = filling ? {PIXEL_BITS{1'b0}} : data;
    assign ready       = strays || (belongs && step);

    tersense_counter #(.LIMIT(WIDTH)) count_x (
        .clk(clk), .rst(rst), .step(step), .count(x), .last(x_last));
    tersense_counter #(.LIMIT(HEIGHT)) count_line (
        .clk(clk), .rst(rst), .step(step && x_last), .count(line), .last(line_last));

    wire short_line = step && belongs && eol && !x_last;
    wire long_line  = step && belongs && !eol && x_last;
    wire breaks     = short_line || long_line || cut;

    always @(posedge clk)
        if (rst) begin
            filling_line  <= 1'b0;
            filling_frame <= 1'b0;
            skipping      <= 1'b0;
            broken        <= 1'b0;
            irregular     <= 1'b0;
        end else begin
            if (short_line)          filling_line <= 1'b1;
            else if (step && x_last) filling_line <= 1'b0;

            if (cut)               filling_frame <= 1'b1;
            else if (step && ends) filling_frame <= 1'b0;

            if (long_line && !ends)            skipping <= 1'b1;
            else if (cut || (strays && eol))   skipping <= 1'b0;

            broken    <= !(step && ends) && (broken || breaks);
            irregular <= breaks || strays;
        end

    // Measurements.

    localparam WINDOWS = ((WIDTH + STRIDE - 1) / STRIDE) * ((HEIGHT + STRIDE - 1) / STRIDE);
    localparam WINDOW_BITS = WINDOWS > 1 ? $clog2(WINDOWS) : 1;

    wire [WINDOW_BITS-1:0] window;
    wire                   window_last;
    reg                    first;
    wire                   give       = y_valid && y_ready;
    wire                   frame_last = y_last && window_last;

    tersense_counter #(.LIMIT(WINDOWS)) count_windows (
        .clk(clk), .rst(rst), .step(give && y_last), .count(window), .last(window_last));

    always @(posedge clk)
        if (rst) begin
            first          <= 1'b1;
            leaving        <= 1'b0;
            leaving_broken <= 1'b0;
        end else begin
            if (give) first <= frame_last;

            if (step && ends)            leaving <= 1'b1;
            else if (give && frame_last) leaving <= 1'b0;

            if (step && ends) leaving_broken <= broken || breaks;
        end

    wire [Y_BITS-1:0] y_out;
    tersense_slice #(.BITS(Y_BITS + 3)) slice_out (
        .clk(clk), .rst(rst),
        .in_valid(y_valid), .in_ready(y_ready),
        .in({frame_last && leaving_broken, first, frame_last, y}),
        .out_valid(m_tvalid), .out_ready(m_tready), .out({m_tuser, m_tlast, y_out})
    );

    wire signed [OUT_BITS-1:0] extended = $signed(y_out);
    assign m_tdata = extended;
endmodule
