//! Settings of `sbp serve` as flags, variables and lines of a file.

use std::path::Path;
use std::process::Output;

use sbp_e2e::process::Serving;

use crate::{run, sbp, text};

fn printed(dir: &Path, file: &str, flags: &[&str], variables: &[(&str, &str)]) -> Output {
    let path = dir.join("sbp.toml");
    std::fs::write(&path, file).unwrap();
    let mut command = sbp(&["serve", "--print-config", "--config"]);
    command.arg(&path).args(flags).envs(variables.iter().copied());
    command.output().unwrap()
}

/// The line of a setting: what it is, and where it comes from.
fn line<'a>(printed: &'a str, setting: &str) -> &'a str {
    let is_its = |line: &&str| line.split(' ').next() == Some(setting);
    printed
        .lines()
        .find(is_its)
        .unwrap_or_else(|| panic!("{setting} in {printed}"))
}

#[test]
fn a_flag_wins_over_a_variable_and_that_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        "data-dir = \"/from/the/file\"\nmax-connections = 10\nlisten = \"127.0.0.1:1\"\ninsecure-listen = true\n";
    let variables = [("SBP_MAX_CONNECTIONS", "11"), ("SBP_LISTEN", "127.0.0.1:2")];
    let told = text(&printed(dir.path(), file, &["--listen", "127.0.0.1:3"], &variables));
    let name = dir.path().join("sbp.toml");
    let name = name.display();
    assert_eq!(
        line(&told, "data-dir"),
        format!("data-dir = \"/from/the/file\"  # {name}")
    );
    assert_eq!(
        line(&told, "max-connections"),
        "max-connections = 11  # $SBP_MAX_CONNECTIONS"
    );
    assert_eq!(line(&told, "listen"), "listen = \"127.0.0.1:3\"  # --listen");
    assert_eq!(
        line(&told, "insecure-listen"),
        format!("insecure-listen = true  # {name}")
    );
    assert_eq!(
        line(&told, "retention-interval"),
        "retention-interval = \"30s\"  # default"
    );
    assert!(told.contains("# advertise is not set"), "{told}");

    // What is printed is a file that says the same.
    let again = text(&printed(dir.path(), &told, &[], &[]));
    let values = |printed: &str| -> Vec<String> {
        let settings = printed.lines().filter(|line| !line.starts_with('#'));
        settings
            .map(|line| line.split("  #").next().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(values(&again), values(&told));
}

#[test]
fn a_server_does_not_take_what_the_environment_says_for_clients() {
    let dir = tempfile::tempdir().unwrap();
    let of_clients = [("SBP_TLS_CA", "a"), ("SBP_TLS_CERT", "b"), ("SBP_TLS_KEY", "c")];
    let told = text(&printed(dir.path(), "data-dir = \"d\"", &[], &of_clients));
    for setting in ["tls-ca", "tls-cert", "tls-key"] {
        assert!(told.contains(&format!("# {setting} is not set")), "{told}");
    }
    let of_servers = [("SBP_SERVE_TLS_CERT", "d"), ("SBP_SERVE_TLS_KEY", "e")];
    let variables = [of_clients.as_slice(), &of_servers].concat();
    let told = text(&printed(dir.path(), "data-dir = \"d\"", &[], &variables));
    assert_eq!(line(&told, "tls-cert"), "tls-cert = \"d\"  # $SBP_SERVE_TLS_CERT");
}

#[test]
fn every_setting_has_a_variable_and_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let told = text(&printed(dir.path(), "data-dir = \"d\"", &[], &[]));
    let help = text(&sbp(&["serve", "--help"]).output().unwrap());
    let flags: Vec<_> = help
        .lines()
        .filter_map(|line| {
            line.trim_start()
                .split("--")
                .nth(1)
                .filter(|_| line.trim_start().starts_with('-'))
        })
        .filter_map(|flag| flag.split(' ').next())
        .filter(|flag| !["config", "print-config", "help"].contains(flag))
        .collect();
    assert!(flags.len() > 8, "{flags:?}");
    for flag in flags {
        let also_of_clients = ["tls-ca", "tls-cert", "tls-key"].contains(&flag);
        let whose = if also_of_clients { "SERVE_" } else { "" };
        let variable = format!("SBP_{whose}{}", flag.replace('-', "_").to_uppercase());
        assert!(help.contains(&variable), "{variable}");
        assert!(
            told.lines()
                .any(|line| line.split(' ').find(|word| *word != "#") == Some(flag)),
            "{flag} in {told}"
        );
    }
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_name_and_place() {
    let dir = tempfile::tempdir().unwrap();
    for (file, words) in [
        ("dir = \"d\"", ["there is no setting \"dir\"", "data-dir, role"]),
        (
            "max-connections = \"many\"",
            ["max-connections: invalid value", "digit"],
        ),
        ("insecure-listen = 1", ["insecure-listen", "true or false"]),
        ("data-dir = [\"a\", \"b\"]", ["data-dir", "array"]),
        ("role = \"all\"", ["role: invalid value", "'all'"]),
        ("data-dir = ", ["line 1", "string"]),
    ] {
        let output = printed(dir.path(), file, &[], &[]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        for words in words.into_iter().chain(["sbp.toml"]) {
            assert!(told.contains(words), "{words} in {told}");
        }
    }
    let missing = sbp(&["serve", "--config", "/nowhere/sbp.toml"]).output().unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nowhere/sbp.toml"));
}

#[test]
fn a_server_runs_with_a_file_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sbp.toml");
    let data = dir.path().join("data");
    let settings = format!(
        "data-dir = {:?}\nlisten = \"127.0.0.1:0\"\nlog = \"warn\"\n",
        data.display()
    );
    std::fs::write(&file, settings).unwrap();
    let server = Serving::spawn(sbp(&["serve"]).env("SBP_CONFIG", &file));
    text(&run(&server, &["stream", "create", "orders"], ""));
    assert!(data.is_dir());
}

#[test]
fn where_metadata_are_is_read_and_does_not_go_with_a_range_server_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = "data-dir = \"d\"\nrole = \"placement-driver\"\nmetadata = \"etcd://e1:2379,e2/orders\"\n";
    let told = text(&printed(dir.path(), file, &[], &[]));
    assert!(
        line(&told, "metadata").starts_with("metadata = \"etcd://e1:2379,e2/orders\"  # "),
        "{told}"
    );
    let variables = [("SBP_METADATA", "etcd://e3/x"), ("SBP_METADATA_TLS_CA", "ca.crt")];
    let told = text(&printed(dir.path(), file, &[], &variables));
    assert_eq!(line(&told, "metadata"), "metadata = \"etcd://e3/x\"  # $SBP_METADATA");
    assert_eq!(
        line(&told, "metadata-tls-ca"),
        "metadata-tls-ca = \"ca.crt\"  # $SBP_METADATA_TLS_CA"
    );

    let data = dir.path().join("data");
    let serve = |arguments: &[&str]| {
        let output = sbp(&["serve", "--data-dir"])
            .arg(&data)
            .args(arguments)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let range_server = ["--role", "range-server", "--placement-driver", "e1:12378"];
    let said = serve(&[&range_server[..], &["--metadata", "etcd://e1:2379/orders"]].concat());
    assert!(said.contains("--metadata is for placement drivers"), "{said}");
    let said = serve(&["--role", "placement-driver", "--metadata", "e1:2379"]);
    assert!(said.contains("write etcd://HOST:PORT,HOST:PORT/NAME"), "{said}");
    let said = serve(&["--role", "placement-driver", "--metadata-tls-ca", "ca.crt"]);
    assert!(said.contains("--metadata"), "{said}");
    assert!(!data.exists(), "nothing was begun");
}
