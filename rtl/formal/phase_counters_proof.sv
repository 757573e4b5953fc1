// Every cycle is counted once: the six counters always add up to the total, whatever the array does.
module phase_counters_proof (
    input wire clk, rst, clear, begin_run, busy, step, preloading, issue_valid, issue_lost, issue_gap
);
    wire [2:0] phase;
    wire [3:0] idle, preload, fill, stream, drain, stall, total;
    phase_counters #(.LATENCY(2), .COUNT_W(4)) dut (
        .clk(clk), .rst(rst), .clear(clear), .begin_run(begin_run), .busy(busy), .step(step),
        .preloading(preloading), .issue_valid(issue_valid), .issue_lost(issue_lost), .issue_gap(issue_gap),
        .phase(phase), .idle(idle), .preload(preload), .fill(fill), .stream(stream), .drain(drain), .stall(stall),
        .total(total)
    );

    reg past_valid = 1'b0;
    always @(posedge clk) begin
        past_valid <= 1'b1;
        if (!past_valid) assume (rst);
        if (past_valid) begin
            assert (phase <= 3'd5);
            assert (idle + preload + fill + stream + drain + stall == total);
            if (!$past(rst || clear)) assert (total == $past(total) + 4'd1);
        end
    end
endmodule
