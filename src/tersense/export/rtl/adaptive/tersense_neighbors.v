// The logarithms of a frame's windows, for a decision that also sees the four windows around one.
//
// Logarithms are stored as they are found, those of the window under way behind all that were kept.
// In an encoder every complete window is kept; once the one below it is, or all are, `there` says
// that the next window can be scored, in the same order. In an open loop none is kept, and the
// window under way is its own neighbor, as a window is beyond the border.
//
// `gather` begins a walk: out come the logarithms of the window at 0 .. GROUPS-1, and at GROUPS ..
// 2*GROUPS-1 the sums of those around it; `done` marks the last one. `next` leaves the window.
module tersense_neighbors #(
    parameter COLUMNS    = 20,
    parameter WINDOWS    = 300,
    parameter GROUPS     = 13,
    parameter GROUP_BITS = 4,
    parameter INDEX_BITS = 5,
    parameter LOG_BITS   = 8
) (
    input  wire                  clk,
    input  wire                  rst,

    input  wire                  store,
    input  wire [GROUP_BITS-1:0] group,
    input  wire [LOG_BITS-1:0]   log,
    input  wire                  keep,

    output wire                  there,
    input  wire                  gather,
    input  wire                  alone,
    input  wire                  next,
    output wire                  valid,
    output wire [INDEX_BITS-1:0] index,
    output wire [LOG_BITS+1:0]   value,
    output wire                  done
);
    localparam WORDS        = WINDOWS * GROUPS;
    localparam ADDRESS_BITS = WORDS > 1 ? $clog2(WORDS) : 1;
    localparam WINDOW_BITS  = $clog2(WINDOWS + 1);
    localparam COLUMN_BITS  = COLUMNS > 1 ? $clog2(COLUMNS) : 1;
    localparam BELOW        = COLUMNS * GROUPS;

    localparam [2:0] OWN = 3'd0, UP = 3'd1, DOWN = 3'd2, LEFT = 3'd3, RIGHT = 3'd4;

    reg [WINDOW_BITS-1:0]  kept, scored;
    reg [COLUMN_BITS-1:0]  column;       // of the window that is scored next
    reg [ADDRESS_BITS-1:0] fill, here;   // where the logarithms go, and where those of that window lie

    wire last   = scored == WINDOWS - 1;
    wire top    = scored < COLUMNS;
    wire bottom = scored >= WINDOWS - COLUMNS;
    wire right  = column == COLUMNS - 1;

    assign there = kept == WINDOWS || kept > scored + COLUMNS;

    // The walk: five places for each group.

    reg                    walking, valid1, last1;
    reg [2:0]              part, part1;
    reg [GROUP_BITS-1:0]   place, place1;
    reg [ADDRESS_BITS-1:0] address;

    always @* begin
        address = here + place;
        if (!alone)
            case (part)
                UP:    if (!top)         address = here + place - BELOW;
                DOWN:  if (!bottom)      address = here + place + BELOW;
                LEFT:  if (column != 0)  address = here + place - GROUPS;
                RIGHT: if (!right)       address = here + place + GROUPS;
                default:                 address = here + place;
            endcase
    end

    // Every word is written before it is read, but at power-on a simulator must find numbers.
    reg [LOG_BITS-1:0] logs [0:WORDS-1];
    reg [LOG_BITS-1:0] read;
    reg [LOG_BITS+1:0] sum;
    integer k;
    initial for (k = 0; k < WORDS; k = k + 1) logs[k] = {LOG_BITS{1'b0}};

    always @(posedge clk) begin
        if (walking) read <= logs[address];
        if (store) logs[fill + group] <= log;
    end

    assign valid = valid1 && (part1 == OWN || part1 == RIGHT);
    assign index = part1 == OWN ? place1 : GROUPS + place1;
    assign value = sum + read;
    assign done  = valid1 && last1;

    always @(posedge clk)
        if (rst) begin
            walking <= 1'b0;
            valid1  <= 1'b0;
            kept    <= {WINDOW_BITS{1'b0}};
            scored  <= {WINDOW_BITS{1'b0}};
            column  <= {COLUMN_BITS{1'b0}};
            fill    <= {ADDRESS_BITS{1'b0}};
            here    <= {ADDRESS_BITS{1'b0}};
            sum     <= {(LOG_BITS+2){1'b0}};
        end else begin
            valid1 <= walking;
            part1  <= part;
            place1 <= place;
            last1  <= part == RIGHT && place == GROUPS - 1;
            if (gather) begin
                walking <= 1'b1;
                part    <= OWN;
                place   <= {GROUP_BITS{1'b0}};
            end else if (walking) begin
                part <= part == RIGHT ? OWN : part + 1'b1;
                if (part == RIGHT) begin
                    place   <= place + 1'b1;
                    walking <= place != GROUPS - 1;
                end
            end
            if (valid1) sum <= part1 == OWN || part1 == RIGHT ? {(LOG_BITS+2){1'b0}} : value;
            if (keep) begin
                kept <= kept + 1'b1;
                fill <= fill + GROUPS;
            end
            if (next) begin
                scored <= last ? {WINDOW_BITS{1'b0}} : scored + 1'b1;
                column <= right ? {COLUMN_BITS{1'b0}} : column + 1'b1;
                here   <= last ? {ADDRESS_BITS{1'b0}} : here + GROUPS;
                if (last) begin
                    kept <= {WINDOW_BITS{1'b0}};
                    fill <= {ADDRESS_BITS{1'b0}};
                end
            end
        end
endmodule
