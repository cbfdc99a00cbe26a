// Sparse ternary encoder. Pixels come in as a sensor gives them, in raster order; for every window
// of the image go out MEASUREMENTS sums of its pixels with weights -1, 0 and +1.
//
//    pixel                                                          measurement
//      |                                                                 ^
//      v                                                                 |
//    scan ---> fetch ---> issue ---> decode ---> load ---> add       read-out
//    jobs     pointer      pc       program      \____ lane ____/        |
//               ROM                   ROM          accumulators  --------+
//                                                      RAM
//
// The matrix is stored by columns. For the place that a pixel has in a window, the pointer ROM says
// where its program begins and how many steps it takes. A step names at most one accumulator of
// each lane, and says whether to add or to subtract the pixel, and whether this accumulator sees
// its first pixel of the window. One step is issued at every clock.
//
// When a window has had its last pixel, its measurements are read out in the order of the rows of
// the matrix; no steps are issued meanwhile. Pixels and measurements move at clocks at which valid
// and ready are both high; ready never waits for valid, and valid never waits for ready.
//
// A step is packed as LANES entries, lane 0 in the lowest bits:
//    {enable, first, subtract, address in the lane's bank}     enable only if there are more lanes
module tersense_encoder #(
    parameter WIDTH        = 640,    // of the image
    parameter HEIGHT       = 480,
    parameter WINDOW       = 32,
    parameter STRIDE       = 32,
    parameter MEASUREMENTS = 256,    // of a window
    parameter PIXEL_BITS   = 8,
    parameter ACC_BITS     = 16,
    parameter LANES        = 1,
    parameter STEPS        = 13056,  // in the program
    parameter STEP_BITS    = 5,      // hold the number of steps of any pixel
    parameter PROGRAM_FILE = "",
    parameter POINTER_FILE = "",
    parameter ORDER_FILE   = ""
) (
    input  wire                  clk,
    input  wire                  rst,

    input  wire                  pixel_valid,
    output wire                  pixel_ready,
    input  wire [PIXEL_BITS-1:0] pixel,

    output reg                   y_valid,
    input  wire                  y_ready,
    output wire [ACC_BITS-1:0]   y,         // two's complement
    output reg                   y_last     // the last measurement of a window
);
    // As in tersense_scan.
    localparam CELLS       = (WINDOW + STRIDE - 1) / STRIDE;
    localparam ACROSS      = (WIDTH + STRIDE - 1) / STRIDE;
    localparam CELL_BITS   = CELLS > 1 ? $clog2(CELLS) : 1;
    localparam STRIDE_BITS = STRIDE > 1 ? $clog2(STRIDE) : 1;
    localparam ACROSS_BITS = ACROSS > 1 ? $clog2(ACROSS) : 1;
    localparam PLACE_BITS  = CELLS > 1 ? 2 * (CELL_BITS + STRIDE_BITS) : 2 * STRIDE_BITS;
    localparam PLACES      = 32'd1 << PLACE_BITS;

    // A slot holds the accumulators of one open window, spread over the banks of all lanes.
    localparam SLOT_BITS   = CELLS > 1 ? ACROSS_BITS + CELL_BITS : ACROSS_BITS;
    localparam SLOTS       = CELLS > 1 ? ACROSS << CELL_BITS : ACROSS;
    localparam BANK        = (MEASUREMENTS + LANES - 1) / LANES;
    localparam BANK_BITS   = BANK > 1 ? $clog2(BANK) : 1;
    localparam LANE_BITS   = LANES > 1 ? $clog2(LANES) : 1;
    localparam ROW_BITS    = MEASUREMENTS > 1 ? $clog2(MEASUREMENTS) : 1;

    localparam ENTRY_BITS  = LANES > 1 ? BANK_BITS + 3 : BANK_BITS + 2;
    localparam PC_BITS     = STEPS > 1 ? $clog2(STEPS) : 1;

    // Scan: one job for each pixel and each window that it belongs to.

    wire                  job_valid, job_ready, job_exists, job_ends;
    wire [PIXEL_BITS-1:0] job_pixel;
    wire [PLACE_BITS-1:0] job_place;
    wire [SLOT_BITS-1:0]  job_slot;

    tersense_scan #(
        .WIDTH(WIDTH), .HEIGHT(HEIGHT), .WINDOW(WINDOW), .STRIDE(STRIDE), .PIXEL_BITS(PIXEL_BITS)
    ) scan (
        .clk(clk), .rst(rst),
        .pixel_valid(pixel_valid), .pixel_ready(pixel_ready), .pixel(pixel),
        .job_valid(job_valid), .job_ready(job_ready), .job_exists(job_exists),
        .job_pixel(job_pixel), .job_place(job_place), .job_slot(job_slot), .job_ends(job_ends)
    );

    // Fetch: the pointer of the next job waits beside it until the job under way is done.

    reg                  fetched;
    reg                  fetched_ends;
    reg [PIXEL_BITS-1:0] fetched_pixel;
    reg [SLOT_BITS-1:0]  fetched_slot;
    wire [PC_BITS-1:0]   fetched_start;
    wire [STEP_BITS-1:0] fetched_steps;
    wire                 take;

    assign job_ready = !fetched || take;

    tersense_rom #(
        .WIDTH(STEP_BITS + PC_BITS), .DEPTH(PLACES), .ADDRESS_BITS(PLACE_BITS),
        .FILE(POINTER_FILE)
    ) pointer_rom (
        .clk(clk), .enable(job_ready), .address(job_place), .data({fetched_steps, fetched_start})
    );

    always @(posedge clk)
        if (rst)
            fetched <= 1'b0;
        else if (job_ready)
            fetched <= job_valid && job_exists;

    always @(posedge clk)
        if (job_ready) begin
            fetched_ends  <= job_ends;
            fetched_pixel <= job_pixel;
            fetched_slot  <= job_slot;
        end

    // Issue: one step of the job under way at every clock.

    reg                  issuing;
    reg                  ending;     // the job under way is the last one of its window
    reg                  reading;    // a window is being read out
    reg [PC_BITS-1:0]    pc;
    reg [STEP_BITS-1:0]  remaining;  // steps, the present one not counted
    reg [PIXEL_BITS-1:0] pixel_now;
    reg [SLOT_BITS-1:0]  slot_now;

    wire final_step = remaining == 0;
    assign take = fetched && (!issuing || final_step) && !ending && !reading;

    always @(posedge clk)
        if (rst)
            issuing <= 1'b0;
        else if (take)
            issuing <= fetched_steps != 0;
        else if (final_step)
            issuing <= 1'b0;

    always @(posedge clk)
        if (take) begin
            pc        <= fetched_start;
            remaining <= fetched_steps - 1'b1;
            pixel_now <= fetched_pixel;
            slot_now  <= fetched_slot;
        end else begin
            pc        <= pc + 1'b1;
            remaining <= remaining - 1'b1;
        end

    // Decode: the step comes out of the ROM, and is registered with its pixel.

    wire [LANES*ENTRY_BITS-1:0] decoded;
    reg  [LANES*ENTRY_BITS-1:0] step;
    reg                         decoding, stepping;
    reg  [PIXEL_BITS-1:0]       decoded_pixel;
    reg  [SLOT_BITS-1:0]        decoded_slot, slot;
    reg  signed [PIXEL_BITS:0]  positive, negative;

    tersense_rom #(
        .WIDTH(LANES * ENTRY_BITS), .DEPTH(STEPS), .ADDRESS_BITS(PC_BITS), .FILE(PROGRAM_FILE)
    ) program_rom (
        .clk(clk), .enable(1'b1), .address(pc), .data(decoded)
    );

    always @(posedge clk)
        if (rst) {stepping, decoding} <= 2'b00;
        else     {stepping, decoding} <= {decoding, issuing};

    always @(posedge clk) begin
        decoded_pixel <= pixel_now;
        decoded_slot  <= slot_now;
        step          <= decoded;
        slot          <= decoded_slot;
        positive      <= {1'b0, decoded_pixel};
        negative      <= -{1'b0, decoded_pixel};
    end

    // Read-out: the rows in their order, from whichever bank holds them. A row is asked for, then
    // located, then read, so the last sum of the window is in RAM before the first read.

    reg                  asking;        // there are rows to ask for
    reg                  located;       // the place of a row is known
    reg                  located_last;
    reg  [ROW_BITS-1:0]  row;
    wire [BANK_BITS-1:0] read_address;
    wire [LANE_BITS-1:0] read_lane;
    reg  [LANE_BITS-1:0] y_lane;

    wire begins   = ending && !issuing && !decoding;
    wire row_last = row == MEASUREMENTS - 1;
    wire move     = !y_valid || y_ready;
    wire done     = y_valid && y_ready && y_last;

    always @(posedge clk)
        if (rst) begin
            ending  <= 1'b0;
            reading <= 1'b0;
            asking  <= 1'b0;
            located <= 1'b0;
            y_valid <= 1'b0;
        end else begin
            if (take)        ending <= fetched_ends;
            else if (begins) ending <= 1'b0;

            if (begins)    reading <= 1'b1;
            else if (done) reading <= 1'b0;

            if (begins)                asking <= 1'b1;
            else if (move && row_last) asking <= 1'b0;

            if (move) begin
                located <= asking;
                y_valid <= located;
            end
        end

    always @(posedge clk)
        if (!asking)   row <= {ROW_BITS{1'b0}};
        else if (move) row <= row + 1'b1;

    always @(posedge clk)
        if (move) begin
            located_last <= row_last;
            y_last       <= located_last;
            y_lane       <= read_lane;
        end

    generate
        if (LANES == 1) begin : g_one_bank
            reg [BANK_BITS-1:0] located_row;
            always @(posedge clk)
                if (move) located_row <= row;
            assign read_address = located_row;
            assign read_lane    = {LANE_BITS{1'b0}};
        end else begin : g_many_banks
            tersense_rom #(
                .WIDTH(LANE_BITS + BANK_BITS), .DEPTH(MEASUREMENTS), .ADDRESS_BITS(ROW_BITS),
                .FILE(ORDER_FILE)
            ) order_rom (
                .clk(clk), .enable(move), .address(row), .data({read_lane, read_address})
            );
        end
    endgenerate

    // Lanes.

    wire [LANES*ACC_BITS-1:0] totals;

    genvar k;
    generate
        for (k = 0; k < LANES; k = k + 1) begin : g_lane
            wire [ENTRY_BITS-1:0] entry = step[k*ENTRY_BITS +: ENTRY_BITS];
            wire enable = LANES == 1 || entry[ENTRY_BITS-1];

            tersense_lane #(
                .PIXEL_BITS(PIXEL_BITS), .ACC_BITS(ACC_BITS), .DEPTH(SLOTS << BANK_BITS),
                .ADDRESS_BITS(SLOT_BITS + BANK_BITS)
            ) lane (
                .clk(clk),
                .address({slot, reading ? read_address : entry[BANK_BITS-1:0]}),
                .step(stepping && enable),
                .first(entry[BANK_BITS+1]),
                .subtract(entry[BANK_BITS]),
                .positive(positive),
                .negative(negative),
                .read(located && move),
                .total(totals[k*ACC_BITS +: ACC_BITS])
            );
        end
    endgenerate

    generate
        if (LANES == 1) begin : g_one_output
            assign y = totals;
        end else begin : g_choose_output
            reg [ACC_BITS-1:0] chosen;
            integer n;
            always @* begin
                chosen = {ACC_BITS{1'b0}};
                for (n = 0; n < LANES; n = n + 1)
                    if (y_lane == n) chosen = totals[n*ACC_BITS +: ACC_BITS];
            end
            assign y = chosen;
        end
    endgenerate
endmodule
