// Spend the budget of a frame: the scores of all windows go in, a count for each window comes out.
//
// Scores are kept with 2048 added, so that none is negative, one window after the other, and walked
// over again and again, one a clock:
//
//     SUM, MEASURE    for each step: the mean of its scores (a division of 12 clocks), and how far
//                     they are from it
//     TEMPER          draw scores to the mean of their step, if they differ little
//     SEARCH          the lowest threshold at which all steps that reach it fit into the budget,
//                     bit by bit: 12 walks
//     SPLIT           how much of the steps just below it every window can have, bit by bit: as
//                     many walks as a count has bits
//     COUNT           the counts; the first windows get one more until the budget is spent
//
// Steps that a window has already are taken (score_taken, from its first step on), whatever they
// score, and kept as 4095. With whole, windows take whole steps only, and end at levels: no SPLIT.
// budget, whole, chance and most must not change from the first score to the last count. A budget
// below what the windows have, or below the first level for all, gives them no more than that.
module tersense_spend #(
    parameter WINDOWS     = 300,
    parameter LEVELS      = 13,
    parameter COUNT_BITS  = 10,   // hold the last level
    parameter BUDGET_BITS = 18,   // hold WINDOWS times the last level
    parameter [LEVELS*COUNT_BITS-1:0] LEVEL_LIST = {LEVELS*COUNT_BITS{1'b0}}  // the first one lowest
) (
    input  wire                   clk,
    input  wire                   rst,
    input  wire [BUDGET_BITS-1:0] budget,
    input  wire                   whole,
    input  wire [2:0]             chance,  // mean difference of scores that means nothing, at most 6
    input  wire [2:0]             most,    // eighths that are left of a difference

    input  wire                   score_valid,
    output wire                   score_ready,
    input  wire [11:0]            score,
    input  wire                   score_taken,

    output wire                   count_valid,
    input  wire                   count_ready,
    output reg  [COUNT_BITS-1:0]  count,
    output reg                    count_last   // of the frame
);
    localparam STEPS          = LEVELS - 1;
    localparam WORDS          = WINDOWS * STEPS;
    localparam ADDRESS_BITS   = WORDS > 1 ? $clog2(WORDS) : 1;
    localparam STEP_BITS      = STEPS > 1 ? $clog2(STEPS) : 1;
    localparam WINDOW_BITS    = WINDOWS > 1 ? $clog2(WINDOWS) : 1;
    localparam SUM_BITS       = 12 + WINDOW_BITS + 1;
    localparam TOTAL_BITS     = SUM_BITS > BUDGET_BITS + 1 ? SUM_BITS : BUDGET_BITS + 1;
    localparam DEVIATION_BITS = 12 + ADDRESS_BITS + 1;

    localparam [3:0] LOAD = 4'd0, SUM = 4'd1, DIVIDE = 4'd2, MEASURE = 4'd3, COMPARE = 4'd4,
                     TEMPER = 4'd5, SEARCH = 4'd6, SPLIT = 4'd7, COUNT = 4'd8, OFFER = 4'd9;

    reg [3:0] state;

    // The walk: a place in the memory, and what is known of it one (1), two (2), three clocks later.

    reg                    walking;
    reg [ADDRESS_BITS-1:0] address, address1, address2, address3;
    reg [STEP_BITS-1:0]    step, step1;
    reg [WINDOW_BITS-1:0]  window;
    reg                    valid1, valid2, valid3;
    reg                    first1, first2, first3, last1, last2, last3;  // step of its window
    reg                    end1, end2, end3, done;                       // of the walk

    wire by_step   = state == SUM || state == MEASURE;  // one step of all windows
    wire load      = score_valid && score_ready;
    wire step_last = step == STEPS - 1;
    wire walk_end  = window == WINDOWS - 1 && (by_step || step_last);

    assign score_ready = state == LOAD;
    assign count_valid = state == OFFER;

    always @(posedge clk) begin
        address1 <= address;
        address2 <= address1;
        address3 <= address2;
        step1    <= step;
        {first3, first2, first1} <= {first2, first1, step == 0};
        {last3, last2, last1}    <= {last2, last1, step_last};
    end

    always @(posedge clk)
        if (rst) begin
            {valid3, valid2, valid1} <= 3'b000;
            {done, end3, end2, end1} <= 4'b0000;
        end else begin
            {valid3, valid2, valid1} <= {valid2, valid1, walking};
            {done, end3, end2, end1} <= {end3, end2, end1, walking && walk_end};
        end

    // The memory.

    reg  [11:0] scores [0:WORDS-1];
    reg  [11:0] score1, score2;
    wire [11:0] tempered;
    wire        rewrite = valid3 && state == TEMPER;

    always @(posedge clk) begin
        if (walking) score1 <= scores[address];
        if (load || rewrite)
            scores[load ? address : address3] <= !load       ? tempered
                                               : score_taken ? 12'hfff
                                               :               {!score[11], score[10:0]};
    end

    // What a step takes: from one level to the next. held is what the window has before a step.

    localparam [COUNT_BITS-1:0] LOWEST = LEVEL_LIST[COUNT_BITS-1:0];
    reg  [COUNT_BITS-1:0] level, upper1, lower1, width2, held;
    reg                   taken2, taken3;
    wire [COUNT_BITS-1:0] holds = score_taken ? level : held;
    integer k;

    always @* begin
        level = LOWEST;
        for (k = 0; k < STEPS; k = k + 1)
            if (step == k) level = LEVEL_LIST[(k + 1) * COUNT_BITS +: COUNT_BITS];
    end

    always @(posedge clk) begin
        upper1 <= level;
        lower1 <= step == 0 ? LOWEST : upper1;
        width2 <= upper1 - lower1;
        taken2 <= &score1;
        taken3 <= taken2;
    end

    // Tempered scores: mean + ((share * (score - mean)) >> 3), and nowhere rising.

    reg  [11:0]        means [0:(1 << STEP_BITS)-1];
    reg  [11:0]        mean2, mean3, least;
    reg  [2:0]         share, doubt;
    reg  signed [12:0] apart2;
    reg  signed [16:0] drawn3;
    wire signed [16:0] wide2 = apart2;
    wire [12:0]        size2 = apart2[12] ? -apart2 : apart2;
    wire [11:0]        near3 = mean3 + drawn3[14:3];

    assign tempered = taken3 ? 12'hfff : first3 || near3 < least ? near3 : least;

    always @(posedge clk) begin
        score2 <= score1;
        mean2  <= means[step1];
        mean3  <= mean2;
        apart2 <= {1'b0, score1} - {1'b0, means[step1]};
        drawn3 <= (share[0] ? wide2 : 17'sd0) + (share[1] ? wide2 <<< 1 : 17'sd0)
                + (share[2] ? wide2 <<< 2 : 17'sd0);
        if (valid3) least <= tempered;
    end

    // What a window takes: the steps that reach the threshold, and a part of those just below it.

    reg  [11:0]           threshold, tried;
    reg  [COUNT_BITS-1:0] part, tried_part, reached3, growth3;
    reg                   reaches2, below2;
    wire [COUNT_BITS-1:0] cut3 = growth3 < tried_part ? growth3 : tried_part;

    always @(posedge clk) begin
        reaches2 <= score1 >= tried;
        below2   <= {1'b0, score1} + 13'd1 == {1'b0, tried};
        if (valid2) begin
            reached3 <= (first2 ? LOWEST : reached3) + (reaches2 ? width2 : {COUNT_BITS{1'b0}});
            growth3  <= (first2 ? {COUNT_BITS{1'b0}} : growth3)
                      + (below2 ? width2 : {COUNT_BITS{1'b0}});
        end
    end

    // Sums over a walk. number is how many windows still have to be decided on a step, all the sum
    // of these over the steps. spare is the budget above what all windows have in any case, left
    // what the steps above the threshold leave of it, extra what is left for one more here and
    // there; they are negative where the budget is too small.

    reg  [TOTAL_BITS-1:0]      total, divisor;
    reg  [DEVIATION_BITS-1:0]  deviation, bar;
    reg  signed [TOTAL_BITS:0] spare, left, extra;
    reg  [WINDOW_BITS:0]       number;
    reg  [ADDRESS_BITS:0]      all;
    reg  [11:0]                quotient;
    reg  [3:0]                 place;  // of the bit that is being found

    wire signed [TOTAL_BITS:0] budgeted   = budget;
    wire signed [TOTAL_BITS:0] needed     = holds;
    wire signed [TOTAL_BITS:0] spent      = total;
    wire                       fits       = spent <= (state == SEARCH ? spare : left);
    wire                       one_more   = growth3 > part && extra > 0;
    wire                       goes_in    = total >= divisor;
    wire [TOTAL_BITS-1:0]      counted    = number;
    wire [DEVIATION_BITS-1:0]  unit       = all;
    wire [11:0]                next_place = (12'd1 << place) >> 1;
    wire [11:0]                found      = fits ? threshold : threshold | 12'd1 << place;
    wire [COUNT_BITS-1:0]      found_part = fits ? tried_part : part;
    wire [COUNT_BITS-1:0]      next_part  = {{(COUNT_BITS-1){1'b0}}, 1'b1} << place >> 1;

    always @(posedge clk)
        if (rst) begin
            state   <= LOAD;
            walking <= 1'b0;
            address <= {ADDRESS_BITS{1'b0}};
            step    <= {STEP_BITS{1'b0}};
            window  <= {WINDOW_BITS{1'b0}};
            held    <= LOWEST;
        end else begin
            if (walking || load) begin
                address <= address + (by_step ? STEPS : 1);
                if (!by_step) step <= step_last ? {STEP_BITS{1'b0}} : step + 1'b1;
                if (by_step || step_last) window <= window + 1'b1;
                if (walk_end) begin
                    walking <= 1'b0;
                    address <= {ADDRESS_BITS{1'b0}};
                    window  <= {WINDOW_BITS{1'b0}};
                end
            end

            case (state)
                LOAD: if (load) begin
                    held <= step_last ? LOWEST : holds;
                    if (step_last) spare <= (window == 0 ? budgeted : spare) - needed;
                    if (walk_end) begin
                        doubt     <= chance + 1'b1;
                        share     <= 3'd0;
                        deviation <= {DEVIATION_BITS{1'b0}};
                        total     <= {TOTAL_BITS{1'b0}};
                        number    <= {(WINDOW_BITS+1){1'b0}};
                        all       <= {(ADDRESS_BITS+1){1'b0}};
                        walking   <= 1'b1;
                        state     <= SUM;
                    end
                end
                SUM: begin
                    if (valid2 && !taken2) begin
                        total  <= total + score2;
                        number <= number + 1'b1;
                    end
                    if (done) begin
                        divisor <= counted << 11;
                        all     <= all + number;
                        place   <= 4'd11;
                        state   <= DIVIDE;
                    end
                end
                DIVIDE: begin
                    divisor  <= divisor >> 1;
                    quotient <= {quotient[10:0], goes_in};
                    place    <= place - 1'b1;
                    if (goes_in) total <= total - divisor;
                    if (place == 0) begin
                        means[step] <= {quotient[10:0], goes_in};
                        address     <= step;
                        walking     <= 1'b1;
                        state       <= MEASURE;
                    end
                end
                MEASURE: begin
                    if (valid2 && !taken2) deviation <= deviation + size2;
                    if (done) begin
                        total   <= {TOTAL_BITS{1'b0}};
                        number  <= {(WINDOW_BITS+1){1'b0}};
                        bar     <= unit;
                        step    <= step_last ? {STEP_BITS{1'b0}} : step + 1'b1;
                        address <= step_last ? {ADDRESS_BITS{1'b0}} : step + 1'b1;
                        walking <= !step_last;
                        state   <= step_last ? COMPARE : SUM;
                    end
                end
                COMPARE:  // share = min(max((deviation / all - chance) >> 1, 0), most)
                    if (deviation >= bar && share != most) begin
                        bar   <= bar + unit;
                        doubt <= doubt == 0 ? 3'd1 : doubt - 1'b1;
                        if (doubt == 0) share <= share + 1'b1;
                    end else begin
                        walking <= 1'b1;
                        state   <= TEMPER;
                    end
                TEMPER: if (done) begin
                    threshold <= 12'd0;
                    tried     <= 12'h7ff;
                    place     <= 4'd11;
                    left      <= spare;
                    walking   <= 1'b1;
                    state     <= SEARCH;
                end
                SEARCH: begin
                    if (valid2 && reaches2 && !taken2) total <= total + width2;
                    if (done) begin
                        if (fits) left <= spare - spent;
                        threshold  <= found;
                        tried      <= place == 0 ? found : found | (next_place - 1'b1);
                        place      <= place == 0 ? COUNT_BITS - 1 : place - 1'b1;
                        part       <= {COUNT_BITS{1'b0}};
                        tried_part <= {!whole, {(COUNT_BITS-1){1'b0}}};
                        extra      <= whole ? {(TOTAL_BITS+1){1'b0}} : fits ? spare - spent : left;
                        total      <= {TOTAL_BITS{1'b0}};
                        walking    <= 1'b1;
                        state      <= place != 0 ? SEARCH : whole ? COUNT : SPLIT;
                    end
                end
                SPLIT: begin
                    if (valid3 && last3) total <= total + cut3;
                    if (done) begin
                        if (fits) extra <= left - spent;
                        part       <= found_part;
                        tried_part <= found_part | next_part;  // next_part is 0 in the end
                        place      <= place - 1'b1;
                        total      <= {TOTAL_BITS{1'b0}};
                        walking    <= 1'b1;
                        state      <= place == 0 ? COUNT : SPLIT;
                    end
                end
                COUNT: begin
                    if (walking && step_last) walking <= 1'b0;  // until this window is counted
                    if (valid3 && last3) begin
                        count      <= reached3 + cut3 + one_more;
                        count_last <= end3;
                        if (one_more) extra <= extra - 1;
                        state      <= OFFER;
                    end
                end
                OFFER: if (count_ready) begin
                    walking <= !count_last;
                    state   <= count_last ? LOAD : COUNT;
                end
                default: state <= LOAD;
            endcase
        end
endmodule
