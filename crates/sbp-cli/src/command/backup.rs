//! `sbp backup` and `sbp restore`

use sbp_server::{BackupManifest, DirectoryFault, RestoreOptions};

use crate::args::{Backup, Restore};
use crate::command::verify;
use crate::error::CliError;
use crate::local_server;
use crate::terminal::{Terminal, progress};

pub(crate) fn back_up(backup: &Backup, terminal: &mut Terminal) -> Result<(), CliError> {
    let found = match local_server::as_address(&backup.source) {
        Some(address) => Some(local_server::data_directory(address)?),
        None => None,
    };
    let directory = found.as_ref().unwrap_or(&backup.source);
    let manifest = sbp_server::back_up(directory, &backup.to, !backup.copy)?;
    write(&manifest, &[], backup.json, terminal)
}

pub(crate) fn restore(restore: &Restore, terminal: &mut Terminal) -> Result<(), CliError> {
    let bar = progress(0, "bytes");
    let options = RestoreOptions {
        with_damage: restore.with_damage,
        keep_number: restore.keep_number,
    };
    let restored = sbp_server::restore(&restore.backup, &restore.to, options, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let restored = restored?;
    write(&restored.manifest, &restored.faults, restore.json, terminal)?;
    if restored.without_number && !restore.json {
        terminal.line(
            "a range server of a cluster: it does not start, unless restored with --keep-number; an empty directory gets its copies \
             from the other servers",
        )?;
        terminal.flush()?;
    }
    match restored.faults.len() {
        0 => Ok(()),
        faults => Err(CliError::RestoredDamage {
            directory: restore.to.clone(),
            faults,
        }),
    }
}

/// Says which moment it is.
fn write(
    manifest: &BackupManifest,
    faults: &[DirectoryFault],
    json: bool,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    if json {
        let mut told = serde_json::to_value(manifest).map_err(|error| CliError::Output(error.into()))?;
        if !faults.is_empty() {
            told["faults"] = faults.iter().map(verify::fault_to_json).collect();
        }
        terminal.line(told)?;
        return terminal.flush();
    }
    verify::write_faults(faults, terminal)?;
    let rows = manifest.streams.iter().map(|stream| {
        let damaged = match stream.damaged.len() {
            0 => String::new(),
            places => format!("damaged in {places} place(s)"),
        };
        vec![
            stream.id.to_string(),
            stream.name.clone().unwrap_or_default(),
            stream.end.to_string(),
            damaged,
        ]
    });
    terminal.table(&[">ID", "NAME", ">END", ""], rows.collect())?;
    let (linked, copied): (Vec<_>, Vec<_>) = manifest.files.iter().partition(|file| file.linked);
    let bytes = |files: &[&sbp_server::ManifestFile]| files.iter().map(|file| file.bytes).sum::<u64>();
    terminal.line(format_args!(
        "{} streams; {} files with {} bytes copied, {} with {} bytes linked",
        manifest.streams.len(),
        copied.len(),
        bytes(&copied),
        linked.len(),
        bytes(&linked)
    ))?;
    terminal.flush()
}
