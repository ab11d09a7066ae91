//! `sbp bench floor`: what the machine can do without any of this, to compare figures with.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{Report, histogram, micros, per_second};
use crate::args::BenchFloor;
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(floor: &BenchFloor, terminal: &mut Terminal) -> Result<(), CliError> {
    let time = Duration::from_secs(floor.seconds.max(1));
    let mut report = Report::default();
    let socket = |source| CliError::System {
        what: "use a loopback socket",
        source,
    };
    let trips = ping_pong(time).map_err(socket)?;
    report.count("tcp 64 B round trip p50 us", trips.value_at_quantile(0.5));
    report.count("tcp 64 B round trip p99 us", trips.value_at_quantile(0.99));
    report.number("tcp one way MB/s", one_way(time).map_err(socket)? / 1e6);
    let path = floor.dir.join(format!(".sbp-floor-{}", std::process::id()));
    let figures = disk(&path, time, &mut report);
    // Also after a failure; a file that was never made cannot be removed.
    let _ = std::fs::remove_file(&path);
    figures.map_err(|source| CliError::File { path, source })?;
    report.show(floor.json, terminal)
}

/// A connected pair on loopback that sends without delay.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn ping_pong(time: Duration) -> io::Result<Histogram<u64>> {
    let (mut near, mut far) = pair()?;
    let echo = thread::spawn(move || {
        let mut buffer = [0; 64];
        // Ends with an error when the near side closes.
        while far
            .read_exact(&mut buffer)
            .and_then(|()| far.write_all(&buffer))
            .is_ok()
        {}
    });
    let mut trips = histogram();
    let mut buffer = [7; 64];
    let begin = Instant::now();
    while begin.elapsed() < time {
        let start = Instant::now();
        near.write_all(&buffer)?;
        near.read_exact(&mut buffer)?;
        trips.saturating_record(micros(start.elapsed()).max(1));
    }
    drop(near);
    let _ = echo.join();
    Ok(trips)
}

/// Bytes per second in one direction.
fn one_way(time: Duration) -> io::Result<f64> {
    let (mut near, mut far) = pair()?;
    let sink = thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        let mut total = 0_u64;
        while let Ok(read @ 1..) = far.read(&mut buffer) {
            total += u64::try_from(read).unwrap_or(0);
        }
        total
    });
    let block = vec![7; 256 << 10];
    let begin = Instant::now();
    while begin.elapsed() < time {
        near.write_all(&block)?;
    }
    drop(near);
    let total = sink.join().unwrap_or(0);
    Ok(per_second(total, begin.elapsed()))
}

fn disk(path: &Path, time: Duration, report: &mut Report) -> io::Result<()> {
    const KINDS: [(usize, &str, &str); 3] = [
        (
            4 << 10,
            "write + fdatasync 4 KiB p50 us",
            "write + fdatasync 4 KiB MB/s",
        ),
        (
            64 << 10,
            "write + fdatasync 64 KiB p50 us",
            "write + fdatasync 64 KiB MB/s",
        ),
        (
            1 << 20,
            "write + fdatasync 1 MiB p50 us",
            "write + fdatasync 1 MiB MB/s",
        ),
    ];
    for (size, latency_name, rate_name) in KINDS {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        let (latency, rate) = synced_writes(file, size, time)?;
        report.count(latency_name, latency.value_at_quantile(0.5));
        report.number(rate_name, rate / 1e6);
    }
    Ok(())
}

/// One after the other, each synced. The file is allocated first, as a log does: growing it would be measured too.
fn synced_writes(mut file: File, size: usize, time: Duration) -> io::Result<(Histogram<u64>, f64)> {
    const LENGTH: u64 = 256 << 20;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LENGTH)?;
    file.sync_all()?;
    let block = vec![7; size];
    let mut latency = histogram();
    let mut written = 0_u64;
    let begin = Instant::now();
    while begin.elapsed() < time && written + u64::try_from(size).unwrap_or(LENGTH) <= LENGTH {
        let start = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        latency.saturating_record(micros(start.elapsed()).max(1));
        written += u64::try_from(size).unwrap_or(0);
    }
    Ok((latency, per_second(written, begin.elapsed())))
}
