//! What is agreed in a handshake, seen by a client that is not ours.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use sbp_e2e::wait::PATIENCE;
use sbp_server::Server;

use crate::setting::Setting;

/// Shakes hands as a client of one version that speaks this inside.
fn shake_hands(
    setting: &Setting,
    server: &Server,
    version: &'static SupportedProtocolVersion,
    inside: &[u8],
) -> std::io::Result<ClientConnection> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(setting.authority.file()).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![inside.to_vec()];
    let name = "localhost".try_into().unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(server.local_addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    socket.flush()?;
    Ok(connection)
}

#[test]
fn both_versions_are_spoken_and_the_protocol_inside_is_agreed() {
    let setting = Setting::new();
    let server = setting.server();
    for (version, agreed) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let connection = shake_hands(&setting, &server, version, b"sbp/0.1").unwrap();
        assert_eq!(connection.protocol_version(), Some(agreed));
        assert_eq!(connection.alpn_protocol(), Some(&b"sbp/0.1"[..]));
    }
    let other = shake_hands(&setting, &server, &TLS13, b"h2").unwrap_err();
    assert!(other.to_string().contains("NoApplicationProtocol"), "{other}");
}
