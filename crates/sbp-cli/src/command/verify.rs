//! `sbp verify`

use sbp_server::{DirectoryFault, DirectoryReport, LostRecords};
use serde_json::json;

use crate::args::Verify;
use crate::error::CliError;
use crate::terminal::{Terminal, progress};

pub(crate) fn run(verify: &Verify, terminal: &mut Terminal) -> Result<(), CliError> {
    let bar = progress(0, "bytes");
    let report = sbp_server::verify(&verify.directory, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report?;
    if verify.json {
        terminal.line(to_json(&report))?;
    } else {
        write_text(&report, terminal)?;
    }
    terminal.flush()?;
    let known = report.faults.iter().filter(|fault| fault.known).count();
    match report.faults.len() - known {
        0 if known == 0 => Ok(()),
        0 => Err(CliError::KnownDamage {
            directory: verify.directory.clone(),
            faults: known,
        }),
        faults => Err(CliError::Damaged {
            directory: verify.directory.clone(),
            faults,
        }),
    }
}

fn write_text(report: &DirectoryReport, terminal: &mut Terminal) -> Result<(), CliError> {
    for note in &report.notes {
        terminal.line(format_args!("note: {note}"))?;
    }
    write_faults(&report.faults, terminal)?;
    let DirectoryReport {
        files,
        bytes,
        groups,
        batches,
        streams,
        ..
    } = report;
    terminal.line(format_args!(
        "{streams} streams, {files} files of records with {bytes} bytes, {groups} groups and {batches} batches are sound"
    ))
}

/// Tells each damaged place, and what it costs.
pub(super) fn write_faults(faults: &[DirectoryFault], terminal: &mut Terminal) -> Result<(), CliError> {
    for fault in faults {
        let file = fault.file.display();
        let bytes = match fault.to {
            0 => String::new(),
            _ => format!(": bytes {} to {}", fault.from, fault.to),
        };
        let known = if fault.known { "known to the server: " } else { "" };
        terminal.line(format_args!("{known}{file}{bytes}: {}", fault.what))?;
        for lost in &fault.lost {
            let LostRecords { range, from, to, .. } = lost;
            let stream = stream(lost);
            terminal.line(format_args!("  lost: {stream}, range {range}, offsets {from} to {to}"))?;
        }
        match (fault.more_lost, fault.lost.is_empty()) {
            (true, _) => terminal.line("  more records may be lost; nothing tells which")?,
            (false, true) => terminal.line("  no record is lost")?,
            (false, false) => {}
        }
    }
    Ok(())
}

fn stream(lost: &LostRecords) -> String {
    match &lost.name {
        Some(name) => format!("stream {} ({name})", lost.stream),
        None => format!("stream {}", lost.stream),
    }
}

/// A damaged place as scripts read it.
pub(super) fn fault_to_json(fault: &DirectoryFault) -> serde_json::Value {
    let lost = |lost: &LostRecords| {
        json!({
            "stream": lost.stream,
            "name": lost.name,
            "range": lost.range,
            "from": lost.from,
            "to": lost.to,
        })
    };
    json!({
        "file": fault.file.display().to_string(),
        "from_byte": fault.from,
        "to_byte": fault.to,
        "what": fault.what,
        "lost": fault.lost.iter().map(lost).collect::<Vec<_>>(),
        "more_lost": fault.more_lost,
        "known": fault.known,
    })
}

fn to_json(report: &DirectoryReport) -> serde_json::Value {
    json!({
        "sound": report.faults.is_empty(),
        "streams": report.streams,
        "files": report.files,
        "bytes": report.bytes,
        "groups": report.groups,
        "batches": report.batches,
        "faults": report.faults.iter().map(fault_to_json).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}
