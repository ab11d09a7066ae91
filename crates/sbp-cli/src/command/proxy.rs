//! `sbp proxy`

use std::io::Write;

use sbp_proxy::{Observer, Proxy, ProxyConfig};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args;
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(asked: args::Proxy, terminal: &mut Terminal) -> Result<(), CliError> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CliError::system("watch signals"))?;
    let proxy = Proxy::start(ProxyConfig {
        listen: asked.listen,
        target: Some(asked.target),
        rules: asked.rules,
        seed: asked.seed,
        insecure_listen: asked.insecure_listen,
        observer: asked.trace.then(trace),
        ..ProxyConfig::default()
    })?;
    terminal.line(format_args!("listening on {}", proxy.address()))?;
    terminal.flush()?;
    // One is enough.
    let _signal = signals.forever().next();
    proxy.shutdown();
    show(&proxy, asked.json, terminal)
}

/// Prints frames as they come. It writes past the terminal's buffer, which belongs to another thread.
fn trace() -> Observer {
    Observer::new(|seen, action| {
        // Nobody reads any more: that is no reason to disturb the connections.
        let _ = writeln!(std::io::stdout().lock(), "{seen}: {}", action.name());
    })
}

fn show(proxy: &Proxy, json: bool, terminal: &mut Terminal) -> Result<(), CliError> {
    let counts = proxy.counts();
    let rules = proxy.rules();
    if json {
        let rules = rules
            .iter()
            .map(|count| json!({ "rule": count.rule.to_string(), "matched": count.matched, "fired": count.fired }));
        terminal.line(json!({
            "connections": counts.connections,
            "refused": counts.refused,
            "foreign": counts.foreign,
            "frames_to_server": counts.frames_to_server,
            "frames_to_client": counts.frames_to_client,
            "bytes_to_server": counts.bytes_to_server,
            "bytes_to_client": counts.bytes_to_client,
            "faults": counts.faults(),
            "rules": rules.collect::<Vec<_>>(),
        }))?;
        return terminal.flush();
    }
    terminal.line(format_args!(
        "{} connections, {} frames to the server, {} to clients, {} faults",
        counts.connections,
        counts.frames_to_server,
        counts.frames_to_client,
        counts.faults()
    ))?;
    if rules.is_empty() {
        return terminal.flush();
    }
    let rows = rules.iter().map(|count| {
        vec![
            count.rule.to_string(),
            count.matched.to_string(),
            count.fired.to_string(),
        ]
    });
    terminal.table(&["RULE", ">MATCHED", ">FIRED"], rows.collect())
}
