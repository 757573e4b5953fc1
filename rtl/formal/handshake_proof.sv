// The result stream of both tops keeps the rules of ready/valid, for every start, every operand and every stall:
// a beat that is offered stays as it is until it is taken, and at rest nothing is counted as work.
module handshake_proof (
    input wire       clk, rst, start, w_valid, w_last, a_valid, a_last, r_ready,
    input wire [2:0] m, n, k,
    input wire [3:0] w, a
);
    reg past_valid = 1'b0;
    always @(posedge clk) begin
        past_valid <= 1'b1;
        if (!past_valid) assume (rst); else assume (!rst);
    end

    wire [1:0] busy, r_valid, r_last;
    wire [9:0] r_data [0:1];
    wire [2:0] phase [0:1];
    ws_top #(.ROWS(2), .COLS(1), .DATA_W(2), .ACC_W(10), .DEPTH(3), .DIM_W(3), .COUNT_W(4)) ws (
        .clk(clk), .rst(rst), .start(start), .size_m(m), .size_n(n), .size_k(k), .busy(busy[0]),
        .s_weights_tvalid(w_valid), .s_weights_tdata(w[1:0]), .s_weights_tlast(w_last),
        .s_activations_tvalid(a_valid), .s_activations_tdata(a), .s_activations_tlast(a_last),
        .m_results_tvalid(r_valid[0]), .m_results_tready(r_ready), .m_results_tdata(r_data[0]),
        .m_results_tlast(r_last[0]), .clear_counters(1'b0), .phase(phase[0])
    );
    os_top #(.ROWS(2), .COLS(1), .DATA_W(2), .ACC_W(10), .DIM_W(3), .COUNT_W(4)) os (
        .clk(clk), .rst(rst), .start(start), .size_m(m), .size_n(n), .size_k(k), .busy(busy[1]),
        .s_weights_tvalid(w_valid), .s_weights_tdata(w[1:0]), .s_weights_tlast(w_last),
        .s_activations_tvalid(a_valid), .s_activations_tdata(a), .s_activations_tlast(a_last),
        .m_results_tvalid(r_valid[1]), .m_results_tready(r_ready), .m_results_tdata(r_data[1]),
        .m_results_tlast(r_last[1]), .clear_counters(1'b0), .phase(phase[1])
    );

    genvar i;
    generate
        for (i = 0; i < 2; i = i + 1) begin : g_top
            always @(posedge clk) if (past_valid && !rst && !$past(rst)) begin
                if ($past(r_valid[i] && !r_ready))
                    assert (r_valid[i] && r_data[i] == $past(r_data[i]) && r_last[i] == $past(r_last[i]));
                assert (busy[i] == (phase[i] != 3'd0));
                cover (r_valid[i] && r_last[i]);
            end
        end
    endgenerate
endmodule
