//! `sbp server`: what a server tells over HTTP.

use std::collections::HashSet;
use std::fs;

use serde_json::Value;
use tokio::runtime::Builder;

use crate::args::{Server, ServerAction, Watched};
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(asked: &Server, terminal: &mut Terminal) -> Result<(), CliError> {
    let ServerAction::Stats(watched) = &asked.action;
    let Some(status) = ask(watched, terminal)? else {
        return Ok(());
    };
    life(&status, terminal)?;
    let server = &status["server"];
    terminal.line("")?;
    latencies(&server["latencies"], terminal)?;
    terminal.line("")?;
    let part = |part| server[part].as_object().into_iter().flatten();
    let figures = part("counts").chain(part("gauges"));
    let rows = figures.filter(|(_, value)| value.is_number() || value.is_boolean());
    // What there is now, and what there was since the start, may have the same name.
    let now = |name: &String| server["counts"].get(name).is_some() && server["gauges"].get(name).is_some();
    let mut shown = HashSet::new();
    let rows = rows.map(|(name, value)| {
        let words = name.replace('_', " ");
        let words = match (now(name), shown.insert(name)) {
            (false, _) => words,
            (true, true) => format!("{words} since the start"),
            (true, false) => format!("{words} now"),
        };
        vec![words, value.to_string()]
    });
    terminal.table(&["", ">"], rows.collect())?;
    let refusals = server["counts"]["refusals"].as_array().into_iter().flatten();
    for refused in refusals {
        terminal.line(format_args!(
            "refused {} times: {} ({})",
            refused["count"],
            word(&refused["name"]),
            refused["code"]
        ))?;
    }
    terminal.flush()
}

/// What the server tells; nothing if it was written as JSON.
fn ask(watched: &Watched, terminal: &mut Terminal) -> Result<Option<Value>, CliError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(CliError::system("start a runtime"))?;
    let token = match &watched.token_file {
        Some(path) => fs::read_to_string(path).map_err(|source| CliError::File {
            path: path.clone(),
            source,
        })?,
        None => std::env::var("SBP_TOKEN").unwrap_or_default(),
    };
    let (tls, address) = (watched.tls.files(), &watched.address);
    let address = match tls {
        Some(_) if !address.contains("://") => &format!("https://{address}"),
        _ => address,
    };
    let asked = sbp_http::ask_status(address, tls.unwrap_or_default(), token.trim(), watched.timeout);
    let text = runtime.block_on(asked)?;
    if watched.json {
        terminal.line(text)?;
        terminal.flush()?;
        return Ok(None);
    }
    let status = serde_json::from_str(&text);
    let status = status.map_err(|error| CliError::Usage(format!("{} tells no status: {error}", watched.address)))?;
    Ok(Some(status))
}

/// A text of the answer, without what a terminal would obey.
fn word(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default().chars();
    text.filter(|letter| !letter.is_control()).collect()
}

/// Who it is, where it stands, and what is wrong.
fn life(status: &Value, terminal: &mut Terminal) -> Result<(), CliError> {
    let server = &status["server"];
    let uptime = status["uptime_seconds"].as_f64().unwrap_or_default();
    let ready = if status["ready"] == true { "ready" } else { "not ready" };
    terminal.line(format_args!(
        "{} {} {}, {ready}, up {uptime:.0} s, {} in {}",
        word(&server["role"]),
        word(&server["address"]),
        word(&status["phase"]),
        word(&server["durability"]),
        word(&server["data_dir"]),
    ))?;
    for problem in status["problems"].as_array().into_iter().flatten() {
        terminal.line(format_args!("{}: {}", word(&problem["kind"]), word(&problem["text"])))?;
    }
    Ok(())
}

fn latencies(latencies: &Value, terminal: &mut Terminal) -> Result<(), CliError> {
    let rows = latencies.as_object().into_iter().flatten().map(|(name, took)| {
        let ms = |share: &str| {
            took[share]
                .as_f64()
                .map_or_else(String::new, |seconds| format!("{:.3}", seconds * 1e3))
        };
        vec![name.replace('_', " "), took["count"].to_string(), ms("p50"), ms("p99")]
    });
    terminal.table(&["LATENCY", ">COUNT", ">P50 MS", ">P99 MS"], rows.collect())
}
