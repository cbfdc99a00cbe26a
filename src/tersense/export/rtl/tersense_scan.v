// Walk over an image in raster order and name, pixel by pixel, the windows that it belongs to.
//
// The image is surrounded by zeros, so that every window is whole, and cut into cells of
// STRIDE x STRIDE pixels. A window covers CELLS x CELLS cells. So a pixel of cell (down, across)
// belongs to the windows (down - b, across - a) with 0 <= a, b < CELLS: one job for each. Six
// wheels count all jobs of an image, from the fastest to the slowest:
//
//     a, b             which of the pixel's windows
//     column, across   the pixel's column in its cell, and its cell
//     row, down        the same for rows
//
// A pixel stays on the input until all of its jobs have been taken. Pixels outside the image
// make jobs too, of value 0, and wait for no input.
module tersense_scan #(
    parameter WIDTH        = 640,  // of the image
    parameter HEIGHT       = 480,
    parameter WINDOW       = 32,
    parameter STRIDE       = 32,
    parameter PIXEL_BITS   = 8,
    // derived
    parameter CELLS        = (WINDOW + STRIDE - 1) / STRIDE,
    parameter ACROSS       = (WIDTH + STRIDE - 1) / STRIDE,   // windows
    parameter DOWN         = (HEIGHT + STRIDE - 1) / STRIDE,
    parameter CELL_BITS    = CELLS > 1 ? $clog2(CELLS) : 1,
    parameter STRIDE_BITS  = STRIDE > 1 ? $clog2(STRIDE) : 1,
    parameter ACROSS_BITS  = ACROSS > 1 ? $clog2(ACROSS) : 1,
    parameter PLACE_BITS   = CELLS > 1 ? 2 * (CELL_BITS + STRIDE_BITS) : 2 * STRIDE_BITS,
    parameter SLOT_BITS    = CELLS > 1 ? ACROSS_BITS + CELL_BITS : ACROSS_BITS
) (
    input  wire                  clk,
    input  wire                  rst,

    input  wire                  pixel_valid,
    output wire                  pixel_ready,
    input  wire [PIXEL_BITS-1:0] pixel,

    output wire                  job_valid,
    input  wire                  job_ready,
    output wire                  job_exists,  // there is such a window; otherwise drop the job
    output wire [PIXEL_BITS-1:0] job_pixel,
    output wire [PLACE_BITS-1:0] job_place,   // the pixel's place in the window
    output wire [SLOT_BITS-1:0]  job_slot,    // the window's set of accumulators
    output wire                  job_ends     // this is the window's last pixel
);
    localparam CELLS_ACROSS = ACROSS + CELLS - 1;
    localparam CELLS_DOWN   = DOWN + CELLS - 1;
    localparam CA_BITS      = CELLS_ACROSS > 1 ? $clog2(CELLS_ACROSS) : 1;
    localparam CD_BITS      = CELLS_DOWN > 1 ? $clog2(CELLS_DOWN) : 1;

    wire [CELL_BITS-1:0]   a, b;
    wire [STRIDE_BITS-1:0] column, row;
    wire [CA_BITS-1:0]     across;
    wire [CD_BITS-1:0]     down;
    wire a_last, b_last, column_last, across_last, row_last, down_last;

    wire next       = job_valid && job_ready;
    wire pixel_last = a_last && b_last;
    wire cell_last  = pixel_last && column_last;
    wire line_last  = cell_last && across_last;
    wire band_last  = line_last && row_last;

    tersense_counter #(.LIMIT(CELLS)) count_a (
        .clk(clk), .rst(rst), .step(next), .count(a), .last(a_last));
    tersense_counter #(.LIMIT(CELLS)) count_b (
        .clk(clk), .rst(rst), .step(next && a_last), .count(b), .last(b_last));
    tersense_counter #(.LIMIT(STRIDE)) count_column (
        .clk(clk), .rst(rst), .step(next && pixel_last), .count(column), .last(column_last));
    tersense_counter #(.LIMIT(CELLS_ACROSS)) count_across (
        .clk(clk), .rst(rst), .step(next && cell_last), .count(across), .last(across_last));
    tersense_counter #(.LIMIT(STRIDE)) count_row (
        .clk(clk), .rst(rst), .step(next && line_last), .count(row), .last(row_last));
    tersense_counter #(.LIMIT(CELLS_DOWN)) count_down (
        .clk(clk), .rst(rst), .step(next && band_last), .count(down), .last(down_last));

    // The image begins OFFSET pixels after the first window. {across, column} orders the columns
    // as they come, whatever STRIDE is, so it can be compared with the same pair of any column.
    localparam OFFSET = (WINDOW - STRIDE) / 2;
    localparam RIGHT  = OFFSET + WIDTH - 1;
    localparam BOTTOM = OFFSET + HEIGHT - 1;
    localparam [CA_BITS-1:0]     FIRST_ACROSS = OFFSET / STRIDE, LAST_ACROSS = RIGHT / STRIDE;
    localparam [CD_BITS-1:0]     FIRST_DOWN   = OFFSET / STRIDE, LAST_DOWN   = BOTTOM / STRIDE;
    localparam [STRIDE_BITS-1:0] FIRST_COLUMN = OFFSET % STRIDE, LAST_COLUMN = RIGHT % STRIDE;
    localparam [STRIDE_BITS-1:0] FIRST_ROW    = OFFSET % STRIDE, LAST_ROW    = BOTTOM % STRIDE;

    wire after_left   = OFFSET == 0 || {across, column} >= {FIRST_ACROSS, FIRST_COLUMN};
    wire after_top    = OFFSET == 0 || {down, row} >= {FIRST_DOWN, FIRST_ROW};
    wire before_right = RIGHT == CELLS_ACROSS * STRIDE - 1
                        || {across, column} <= {LAST_ACROSS, LAST_COLUMN};
    wire before_bottom = BOTTOM == CELLS_DOWN * STRIDE - 1 || {down, row} <= {LAST_DOWN, LAST_ROW};
    wire in_image = after_left && before_right && after_top && before_bottom;

    assign job_valid   = pixel_valid || !in_image;
    assign job_pixel   = in_image ? pixel : {PIXEL_BITS{1'b0}};
    assign pixel_ready = in_image && job_ready && pixel_last;

    localparam LAST = WINDOW - 1;
    localparam [CELL_BITS-1:0]   LAST_CELL = LAST / STRIDE;
    localparam [STRIDE_BITS-1:0] LAST_LINE = LAST % STRIDE;

    generate
        if (CELLS == 1) begin : g_blocks
            assign job_exists = 1'b1;
            assign job_place  = {row, column};
            assign job_slot   = across;
            assign job_ends   = {row, column} == {LAST_LINE, LAST_LINE};
        end else begin : g_lapped
            // Windows of CELLS rows of windows are open at a time; they take turns.
            wire [CELL_BITS-1:0] turn;
            tersense_counter #(.LIMIT(CELLS)) count_turn (
                .clk(clk), .rst(rst), .step(next && band_last), .count(turn), .last());

            wire [CA_BITS-1:0]   window_across = across - a;
            wire [CD_BITS-1:0]   window_down   = down - b;
            wire [CELL_BITS-1:0] window_turn   = turn >= b ? turn - b : turn + CELLS - b;

            assign job_exists = across >= a && window_across < ACROSS
                                && down >= b && window_down < DOWN;
            assign job_place  = {b, row, a, column};
            assign job_slot   = {window_across[ACROSS_BITS-1:0], window_turn};
            assign job_ends   = job_place == {LAST_CELL, LAST_LINE, LAST_CELL, LAST_LINE};
        end
    endgenerate
endmodule
