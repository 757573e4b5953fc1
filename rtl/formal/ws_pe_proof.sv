// One step of a weight-stationary cell: p_out = p_in + a * weight, where the weight is the shadow's from the step that
// carries `first`, and stays the same until the next `first`, whatever is loaded in between; without a step nothing moves.
module ws_pe_proof (
    input wire              clk,
    input wire              rst,
    input wire              step,
    input wire              first,
    input wire signed [7:0] a,
    input wire              load,
    input wire signed [7:0] w,
    input wire signed [31:0] p
);
    wire              first_out, load_out;
    wire signed [7:0] a_out, w_out;
    wire signed [31:0] p_out;
    wire signed [7:0]  active;
    ws_pe dut (
        .active(active),
        .clk(clk), .rst(rst), .step(step), .first_in(first), .a_in(a), .load_in(load), .w_in(w), .p_in(p),
        .first_out(first_out), .a_out(a_out), .load_out(load_out), .w_out(w_out), .p_out(p_out)
    );

    reg past_valid = 1'b0;
    reg signed [7:0] chain, weight;  // what the shadow holds, and what the current tile multiplies with
    // The cell's own registers, equal to those two by the first two assertions: the solver then compares like products.
    wire signed [7:0] in_use = first ? w_out : active;
    wire signed [31:0] grown = p + a * in_use;
    always @(posedge clk) begin
        past_valid <= 1'b1;
        if (!past_valid) assume (rst);
        if (rst) {chain, weight} <= 16'b0;
        else if (step) begin
            if (first) weight <= chain;
            if (load) chain <= w;
        end

        if (past_valid) assert (active == weight && w_out == chain);
        if (past_valid && !rst && !$past(rst)) begin
            if ($past(step)) begin
                assert (p_out == $past(grown));
                assert (a_out == $past(a) && first_out == $past(first) && load_out == $past(load));
            end else
                assert (p_out == $past(p_out) && a_out == $past(a_out) && w_out == $past(w_out));
        end
    end
endmodule
