//! HTTP over TLS, with the certificate of the server.

use std::io::{Read, Write};
use std::path::PathBuf;

use sbp_e2e::access::Names;
use sbp_e2e::certificates::{Authority, Issued};
use sbp_e2e::servers::quick_config;
use sbp_e2e::wait::LIMIT;
use sbp_http::{AskError, HttpConfig, HttpServer, ObservedServer, ask_status};
use sbp_server::{AccessConfig, ClientTlsFiles, ServerConfig, ServerTlsFiles, StartError};

use super::troubles::{begin_log, logged};
use super::{anywhere, connect, until};

fn files(issued: &Issued, client_ca: Option<PathBuf>) -> ServerTlsFiles {
    ServerTlsFiles {
        cert: issued.cert.clone(),
        key: issued.key.clone(),
        client_ca,
    }
}

fn https() -> HttpConfig {
    HttpConfig {
        listen: "https://127.0.0.1:0".to_owned(),
        ..anywhere()
    }
}

/// What the server tells over TLS to somebody who trusts this authority.
fn asked(server: &ObservedServer, authority: &Authority) -> Result<String, AskError> {
    let trusted = ClientTlsFiles {
        ca: Some(authority.file()),
        ..ClientTlsFiles::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(ask_status(&server.http_url().unwrap(), trusted, "", LIMIT))
}

#[test]
fn figures_go_over_tls_and_a_new_certificate_counts_from_the_next_connection_on() {
    let directory = tempfile::tempdir().unwrap();
    let old = Authority::new(directory.path(), "old");
    let new = Authority::new(directory.path(), "new");
    let issued = old.issue("server", &["127.0.0.1"]);
    let config = ServerConfig {
        // Clients of SBP have to show a certificate; browsers have none.
        tls: Some(files(&issued, Some(old.file()))),
        ..quick_config(None, "127.0.0.1:0")
    };
    let server = ObservedServer::start(config, Some(&https())).unwrap();
    assert!(server.http_url().unwrap().starts_with("https://127.0.0.1:"));
    assert!(asked(&server, &old).unwrap().contains("\"phase\":\"serving\""));
    let stranger = asked(&server, &new).unwrap_err().to_string();
    assert!(
        stranger.contains("no authority that is trusted here has issued it"),
        "{stranger}"
    );

    let mut plain = connect(server.http_addr().unwrap());
    plain
        .write_all(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut told = Vec::new();
    let _ended = plain.read_to_end(&mut told);
    assert!(
        !String::from_utf8_lossy(&told).contains("serving"),
        "nothing is told without TLS"
    );

    new.issue("server", &["127.0.0.1"]);
    server.reload_certificates().unwrap();
    assert!(asked(&server, &new).unwrap().contains("serving"));
    assert!(asked(&server, &old).is_err());
}

#[test]
fn nobody_waits_for_a_disk_with_certificates_that_is_gone() {
    begin_log();
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "authority");
    let issued = authority.issue("server", &["127.0.0.1"]);
    let config = ServerConfig {
        tls: Some(files(&issued, None)),
        ..quick_config(None, "127.0.0.1:0")
    };
    let server = ObservedServer::start(config, Some(&https())).unwrap();
    // Who reads a pipe that nobody writes to waits as for a disk that is gone.
    let pipe = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let certificate = std::fs::read(&issued.cert).unwrap();
    std::fs::rename(&pipe, &issued.cert).unwrap();
    until("a look at the files", || {
        asked(&server, &authority).unwrap();
        logged("the disk with certificates and keys does not answer")
    });
    asked(&server, &authority).unwrap();
    // It answers again, once what waits to read has got the certificate.
    std::fs::write(&issued.cert, certificate).unwrap();
    asked(&server, &authority).unwrap();
}

#[test]
fn who_begins_no_handshake_is_cut_and_holds_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new(directory.path(), "authority");
    let config = ServerConfig {
        tls: Some(files(&authority.issue("server", &["127.0.0.1"]), None)),
        ..quick_config(None, "127.0.0.1:0")
    };
    let server = ObservedServer::start(config, Some(&https())).unwrap();
    let silent: Vec<_> = (0..100).map(|_| connect(server.http_addr().unwrap())).collect();
    assert!(asked(&server, &authority).is_ok());
    for mut stream in silent {
        let ended = stream.read(&mut [0; 100]);
        assert!(matches!(ended, Ok(0)) || ended.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock));
    }
}

#[test]
fn other_machines_may_ask_over_tls_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let issued = Authority::new(directory.path(), "authority").issue("server", &["127.0.0.1"]);
    let names = Names::default();
    let access = Some(AccessConfig {
        file: names.path(),
        jwt: None,
    });
    let tls = Some(files(&issued, None));
    let config = |tls: &Option<ServerTlsFiles>, access: &Option<AccessConfig>| ServerConfig {
        tls: tls.clone(),
        access: access.clone(),
        ..ServerConfig::default()
    };
    let at = |listen: &str| HttpConfig {
        listen: listen.to_owned(),
        ..anywhere()
    };
    let everywhere = at("https://0.0.0.0:0");
    assert!(HttpServer::start(&everywhere, &config(&tls, &access)).is_ok());
    let refused = HttpServer::start(&everywhere, &config(&tls, &None));
    assert!(matches!(refused, Err(StartError::InsecureListen { .. })), "{refused:?}");
    let refused = HttpServer::start(&at("0.0.0.0:0"), &config(&tls, &access));
    assert!(
        matches!(refused, Err(StartError::InsecureListen { .. })),
        "in clear: {refused:?}"
    );
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("--http https://0.0.0.0:0") && !said.contains("--auth"),
        "{said}"
    );
    let refused = HttpServer::start(&everywhere, &config(&None, &access))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("--tls-cert"), "{refused}");
    let refused = HttpServer::start(&at("ftp://127.0.0.1:0"), &config(&tls, &access));
    assert!(matches!(refused, Err(StartError::BadAddress { .. })), "{refused:?}");
    assert!(HttpServer::start(&at("http://127.0.0.1:0"), &config(&None, &None)).is_ok());
}
