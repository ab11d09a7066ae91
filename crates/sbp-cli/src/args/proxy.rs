//! `sbp proxy` on the command line.

use clap::Args;
use sbp_proxy::Rule;

#[derive(Args, Debug)]
#[command(after_help = "\
A rule is a fault, and then conditions that choose the frames it happens to. Without conditions it happens to all.

Faults:
  drop               the frame is not passed on
  delay=TIME         it is passed on later (20ms, 1.5s), and so is what comes behind it
  duplicate          it is passed on twice
  reorder[=N]        the next N answers overtake this one (1 when not given); requests keep their order
  cut                the connection ends in front of the frame
  cut=BYTES          it ends behind that many bytes of the frame
  cut-after          it ends behind the frame

Conditions:
  request, answer    what the frame is, whoever sends it
  to-server, to-client
  APPEND, FETCH ...  its operation, by the protocol's name or number (0x1001)
  connection=N       on the N-th connection
  nth=N              the N-th such frame, counted over all connections
  every=N            each N-th such frame
  byte=N             the frame with that byte, counted from 0 on its connection; `cut` then falls exactly there
  probability=P      by chance, from 0 to 1; --seed makes it another chance
  times=N            at most N times

Rules are asked in their order; the first that takes a frame decides, and those behind it do not count it.

Examples:
  sbp serve --data-dir ./data --advertise 127.0.0.1:12379
  sbp proxy --listen 127.0.0.1:12379 --rule 'drop answer APPEND nth=3' --trace
  sbp proxy --rule 'cut request APPEND every=100' --rule 'delay=20ms to-client probability=0.1'
  sbp append orders --servers 127.0.0.1:12379 --data hello

A server tells clients where to connect: start it with --advertise and the proxy's address, or they go around the
proxy. It reads frames, so it speaks no TLS: put it in front of an address without. Prints `listening on HOST:PORT`, and
what each rule has done when SIGINT or SIGTERM ends it.")]
pub(crate) struct Proxy {
    /// The server that connections are passed on to.
    #[arg(long, default_value = "127.0.0.1:12378", value_name = "HOST:PORT")]
    pub(crate) target: String,
    /// Address to listen on; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:12379", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// A fault and the frames it happens to, as below; may be given several times.
    #[arg(long = "rule", value_name = "RULE")]
    pub(crate) rules: Vec<Rule>,
    /// What probabilities start from: the same frames in the same order then meet the same faults.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print a line for each frame.
    #[arg(long)]
    pub(crate) trace: bool,
    /// Print what was done as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Listen where other machines can connect.
    #[arg(long)]
    pub(crate) insecure_listen: bool,
}
