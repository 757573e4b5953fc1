// The skid buffer loses, duplicates and reorders nothing, holds a beat that is not taken, and is a register on ready.
module skid_buffer_proof (
    input wire       clk,
    input wire       rst,
    input wire       s_valid,
    input wire [3:0] s_data,
    input wire       m_ready
);
    wire       s_ready, m_valid;
    wire [3:0] m_data;
    skid_buffer #(.WIDTH(4)) dut (
        .clk(clk), .rst(rst), .s_valid(s_valid), .s_ready(s_ready), .s_data(s_data),
        .m_valid(m_valid), .m_ready(m_ready), .m_data(m_data)
    );

    // A queue as the specification says it: words taken in and not yet given out.
    reg       past_valid = 1'b0;
    reg [1:0] waiting = 2'd0;
    reg [3:0] oldest;
    wire      taken = s_valid && s_ready;
    wire      given = m_valid && m_ready;

    always @(posedge clk) begin
        past_valid <= 1'b1;
        if (!past_valid) assume (rst);
        if (rst) waiting <= 2'd0;
        else begin
            waiting <= waiting + {1'b0, taken} - {1'b0, given};
            if (taken && !given) oldest <= s_data;
        end

        if (past_valid && !rst) begin
            assert (waiting <= 2'd1);                                       // never more than it can hold
            assert (s_ready == (waiting == 2'd0));                          // takes a word whenever it can hold one
            if (waiting == 2'd1) assert (m_valid && m_data == oldest);      // what was taken in comes out, in order
            if (waiting == 2'd0) assert (m_valid == s_valid);               // nothing comes from nowhere
            if (waiting == 2'd0 && m_valid) assert (m_data == s_data);      // an empty buffer costs no cycle
            if (!$past(rst) && $past(m_valid && !m_ready)) begin            // the handshake is stable
                if ($past(waiting) == 2'd1 || $past(taken)) assert (m_valid && m_data == $past(m_data));
            end
        end
        cover (past_valid && !rst && $past(given) && waiting == 2'd1 && given);
    end
endmodule
