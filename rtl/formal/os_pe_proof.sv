// One step of an output-stationary cell: the sum starts anew with `first`, grows by a * w with each valid operand, and
// is copied to the drain register with `last`; otherwise that register shifts when asked to, and never loses a capture.
module os_pe_proof (
    input wire              clk,
    input wire              rst,
    input wire              step,
    input wire [2:0]        mark,
    input wire signed [7:0] a,
    input wire signed [7:0] w,
    input wire              drain,
    input wire signed [31:0] above
);
    wire [2:0]        mark_out;
    wire              drain_out;
    wire signed [7:0] a_out, w_out;
    wire signed [31:0] y_out, held;
    os_pe dut (
        .held(held),
        .clk(clk), .rst(rst), .step(step), .mark_in(mark), .a_in(a), .w_in(w), .drain_in(drain), .y_in(above),
        .mark_out(mark_out), .a_out(a_out), .w_out(w_out), .drain_out(drain_out), .y_out(y_out)
    );

    wire valid = mark[2], first = mark[1], last = mark[0];
    reg past_valid = 1'b0;
    reg signed [31:0] sum;
    wire signed [31:0] grown = (first ? 32'sd0 : held) + a * w;
    always @(posedge clk) begin
        past_valid <= 1'b1;
        if (!past_valid) assume (rst);
        if (rst) sum <= 32'sd0;
        else if (step && valid) sum <= grown;

        if (past_valid) assert (held == sum);
        if (past_valid && !rst && !$past(rst)) begin
            if ($past(step)) begin
                assert (mark_out == $past(mark) && a_out == $past(a) && w_out == $past(w) && drain_out == $past(drain));
                if ($past(valid && last)) assert (y_out == $past(grown));
                else if ($past(drain)) assert (y_out == $past(above));
                else assert (y_out == $past(y_out));
            end else
                assert (y_out == $past(y_out) && mark_out == $past(mark_out) && a_out == $past(a_out));
        end
    end
endmodule
