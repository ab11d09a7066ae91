//! What shells, `man` and systemd are told.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use sbp_e2e::process::Serving;

use crate::{sbp, text};

#[test]
fn a_shell_completes_commands_flags_and_values() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&sbp(&["completions", shell]).output().unwrap());
        for word in ["data-dir", "range-server", "trim"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("sbp");
    std::fs::write(&script, text(&sbp(&["completions", "bash"]).output().unwrap())).unwrap();
    // As the shell calls it for `sbp serve --dur<Tab>`.
    let ask =
        "source \"$0\"; COMP_WORDS=(sbp serve --dur); COMP_CWORD=2; _sbp sbp --dur serve; echo \"${COMPREPLY[@]}\"";
    let replied = Command::new("bash").args(["-c", ask]).arg(&script).output().unwrap();
    assert_eq!(text(&replied).trim(), "--durability");
}

#[test]
fn there_is_a_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let man1 = dir.path().join("share/man1");
    text(&sbp(&["man", "--to"]).arg(&man1).output().unwrap());
    let read = |name: &str| std::fs::read_to_string(man1.join(name)).unwrap();
    assert!(read("sbp.1").contains("sbp\\-serve(1)"), "{}", read("sbp.1"));
    assert!(read("sbp-serve.1").contains("SBP_DATA_DIR"));
    assert!(read("sbp-stream-trim.1").contains("before"));
    let pages = std::fs::read_dir(&man1).unwrap();
    let names: Vec<_> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().all(|name| !name.contains("help")), "{names:?}");
    let refused = sbp(&["man", "--to", "/dev/null/man1"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("/dev/null/man1"));
}

#[test]
fn systemd_is_told_when_the_server_is_ready_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let told = || {
        let mut bytes = [0; 512];
        let length = systemd.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let server = Serving::spawn(
        sbp(&["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir.path().join("data"))
            .env("NOTIFY_SOCKET", &socket),
    );
    let ready = told();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    assert!(ready.contains(&format!("serving at {}", server.address)), "{ready}");
    assert!(server.end(rustix::process::Signal::TERM).success());
    assert_eq!(told().trim(), "STOPPING=1");
}
