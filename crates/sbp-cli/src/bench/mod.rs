//! `sbp bench`: figures that are measured, with what they cost.

mod append;
mod awaited;
mod fetch;
mod floor;
mod goal;
mod usage;

use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::HumanCount;
use sbp_server::{Server, ServerConfig};
use serde_json::{Map, Value};

use crate::args::{Bench, BenchWhat, Connection, Embedded};
use crate::command::serve::durability;
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(bench: Bench, terminal: &mut Terminal) -> Result<(), CliError> {
    match bench.what {
        BenchWhat::Append(append) => append::run(append, terminal),
        BenchWhat::Fetch(fetch) => fetch::run(&fetch, terminal),
        BenchWhat::Floor(floor) => floor::run(&floor, terminal),
    }
}

/// Starts the server that was asked for and points the connection at it. Keep what is returned.
fn embed(embedded: &Embedded, connection: &mut Connection) -> Result<Option<Server>, CliError> {
    if !embedded.embedded {
        return Ok(None);
    }
    let config = ServerConfig {
        durability: durability(embedded.durability),
        ..ServerConfig::default()
    };
    let server = Server::start(config)?;
    connection.servers = server.address().to_owned();
    Ok(Some(server))
}

/// Figures with their names, in the order they are shown.
#[derive(Debug, Default)]
struct Report {
    rows: Vec<(&'static str, String, Value)>,
}

impl Report {
    fn text(&mut self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        self.rows.push((name, value.clone(), value.into()));
    }

    fn count(&mut self, name: &'static str, value: u64) {
        self.rows.push((name, HumanCount(value).to_string(), value.into()));
    }

    /// A figure with two digits behind the point, or four when it is small.
    fn number(&mut self, name: &'static str, value: f64) {
        let text = if value.abs() < 1.0 {
            format!("{value:.4}")
        } else {
            format!("{value:.2}")
        };
        self.rows.push((name, text, Value::from(value)));
    }

    fn quantiles(&mut self, micros: &Histogram<u64>) {
        if micros.is_empty() {
            return;
        }
        for (name, quantile) in [
            ("p50 us", 0.5),
            ("p90 us", 0.9),
            ("p99 us", 0.99),
            ("p99.9 us", 0.999),
            ("max us", 1.0),
        ] {
            self.count(name, micros.value_at_quantile(quantile));
        }
    }

    /// CPU time per piece of work and per gigabyte, where the system tells it.
    fn cpu(&mut self, name: &'static str, cpu: Option<Duration>, count: u64, bytes: u64) {
        if let Some(cpu) = cpu {
            self.number(name, ratio(micros(cpu), count));
            self.number("cpu s/GB", cpu.as_secs_f64() * ratio(1_000_000_000, bytes));
        }
    }

    fn show(self, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
        if json {
            let object: Map<_, _> = self
                .rows
                .into_iter()
                .map(|(name, _, value)| (key(name), value))
                .collect();
            terminal.line(Value::from(object))?;
            return terminal.flush();
        }
        let rows = self
            .rows
            .into_iter()
            .map(|(name, text, _)| vec![name.to_owned(), text])
            .collect();
        terminal.table(&["", ">"], rows)
    }
}

/// A row's name as a JSON key.
fn key(name: &str) -> String {
    name.replace('/', " per ").replace([' ', '.', '-'], "_")
}

/// Latencies in microseconds up to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are valid")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// For ratios in reports; exact up to 2^53.
#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn ratio(over: u64, under: u64) -> f64 {
    if under == 0 { 0.0 } else { over as f64 / under as f64 }
}

#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::{Report, key};

    #[test]
    fn digits_are_grouped() {
        let mut report = Report::default();
        for value in [0, 999, 1_000, 1_234_567] {
            report.count("", value);
        }
        let texts: Vec<_> = report.rows.iter().map(|(_, text, _)| text.as_str()).collect();
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn names_become_keys() {
        assert_eq!(key("records/s"), "records_per_s");
        assert_eq!(key("p99.9 us"), "p99_9_us");
    }
}
