//! A scrape of metrics is made piece by piece.

use sbp_e2e::admin::create_many;
use sbp_e2e::peer::Peer;
use sbp_e2e::servers::quick_config;
use sbp_server::{Monitor, Scrape, Server, ServerConfig};

/// A server with so many streams, and how it is looked at.
fn with_streams(count: usize) -> (Server, Monitor) {
    let monitor = Monitor::default();
    let config = ServerConfig {
        monitor: monitor.clone(),
        ..quick_config(None, "127.0.0.1:0")
    };
    let server = Server::start(config).unwrap();
    let mut peer = Peer::connect(&server);
    for _ in 0..count / 500 {
        create_many(&mut peer, 500);
    }
    (server, monitor)
}

#[test]
fn a_scrape_keeps_one_piece_in_memory_however_many_streams_there_are() {
    let (_server, monitor) = with_streams(10_000);
    let (mut whole, mut largest) = (0, 0);
    let used = allocation_counter::measure(|| {
        for piece in Scrape::new(monitor, true) {
            whole += piece.len();
            largest = largest.max(piece.len());
        }
    });
    assert!(whole > 1 << 20, "{whole}");
    assert!(largest < 64 << 10, "{largest}");
    assert!(used.bytes_max < 512 << 10, "{used:?} for {whole} bytes");
}

#[test]
fn the_samples_of_a_metric_come_together_behind_its_head_whatever_the_pieces() {
    let (_server, monitor) = with_streams(1_500);
    let pieces: Vec<_> = Scrape::new(monitor, true).collect();
    assert!(pieces.len() > 4, "{}", pieces.len());
    let text = pieces.concat();
    assert!(text.ends_with("# EOF\n"));
    for name in ["start_offset", "end_offset", "bytes", "writers"] {
        let (_, behind) = text.split_once(&format!("# TYPE sbp_stream_{name} gauge\n")).unwrap();
        let sample = format!("sbp_stream_{name}{{");
        let together = behind.lines().take_while(|line| line.starts_with(&sample)).count();
        assert_eq!(together, 1_500, "{name}");
        assert_eq!(text.matches(&sample).count(), 1_500, "{name}");
    }
}
