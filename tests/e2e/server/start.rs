//! Starting and not starting: every refusal names the thing and what to do.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use sbp_e2e::peer::Peer;
use sbp_e2e::servers::{config, start};
use sbp_server::{Server, ServerConfig, StartError};

fn refusal(config: ServerConfig) -> StartError {
    Server::start(config).expect_err("the server must not start")
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = refusal(ServerConfig {
        listen: address.clone(),
        ..config(None)
    });
    assert!(matches!(error, StartError::PortTaken { .. }), "{error:?}");
    assert!(error.to_string().contains(&address), "{error}");
}

#[test]
fn a_directory_has_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(Some(directory.path()));
    let error = refusal(config(Some(directory.path())));
    assert!(matches!(error, StartError::DirectoryLocked { .. }), "{error:?}");
    assert!(
        error.to_string().contains(&directory.path().display().to_string()),
        "{error}"
    );
    first.shutdown().unwrap();
    start(Some(directory.path())).shutdown().unwrap();
}

#[test]
fn other_machines_are_served_only_when_that_is_meant() {
    let listen = "0.0.0.0:0".to_owned();
    let error = refusal(ServerConfig {
        listen: listen.clone(),
        ..config(None)
    });
    assert!(matches!(error, StartError::InsecureListen { .. }), "{error:?}");
    let server = Server::start(ServerConfig {
        listen,
        insecure_listen: true,
        ..config(None)
    })
    .unwrap();
    server.shutdown().unwrap();
}

#[test]
fn an_address_that_is_none_is_named() {
    for address in ["", "nonsense", "127.0.0.1", "127.0.0.1:99999"] {
        let error = refusal(ServerConfig {
            listen: address.to_owned(),
            ..config(None)
        });
        assert!(matches!(error, StartError::BadAddress { .. }), "{address}: {error:?}");
    }
    for address in ["", "host", "host:0", "0.0.0.0:12378", "http://host:12378"] {
        let error = refusal(ServerConfig {
            advertise: Some(address.to_owned()),
            ..config(None)
        });
        assert!(matches!(error, StartError::BadAddress { .. }), "{address}: {error:?}");
        assert!(error.to_string().contains("advertise"), "{error}");
    }
}

#[test]
fn metadata_that_is_older_than_the_log_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let metadata = directory.path().join("metadata.redb");
    let kept = directory.path().join("kept");
    start(Some(directory.path())).shutdown().unwrap();
    std::fs::copy(&metadata, &kept).unwrap();
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    let stream = peer.create("s");
    peer.store(stream, b"x");
    server.shutdown().unwrap();
    let newer = std::fs::read(&metadata).unwrap();
    std::fs::copy(&kept, &metadata).unwrap();
    let error = refusal(config(Some(directory.path())));
    assert!(
        matches!(error, StartError::MetadataOlderThanLog { stream: id, .. } if id == stream.0),
        "{error:?}"
    );
    // Nothing was dropped: with the right file everything is back.
    std::fs::write(&metadata, newer).unwrap();
    let server = start(Some(directory.path()));
    assert_eq!(Peer::connect(&server).fetch_all(stream, 0).len(), 1);
}

#[test]
fn a_log_that_is_older_than_the_metadata_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let server = start(Some(directory.path()));
        let mut peer = Peer::connect(&server);
        let stream = peer.create("s");
        peer.store(stream, b"x");
        server.shutdown().unwrap();
    }
    let kept = directory.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    for file in std::fs::read_dir(directory.path()).unwrap().flatten() {
        if file.path().is_file() && file.file_name() != "metadata.redb" {
            std::fs::rename(file.path(), kept.join(file.file_name())).unwrap();
        }
    }
    // A new and empty log: starting on it would give offset 0 of the stream a second time.
    let error = refusal(config(Some(directory.path())));
    assert!(matches!(error, StartError::LogOlderThanMetadata { .. }), "{error:?}");
}

/// What the descriptors of a server are of.
fn held(server: &Server) -> Vec<PathBuf> {
    let read = |fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    server.descriptors().into_iter().map(read).collect()
}

#[test]
fn a_temporary_directory_is_deleted() {
    let server = start(None);
    let held = held(&server);
    let lock = held.iter().find(|path| path.ends_with("lock")).unwrap();
    let directory = lock.parent().unwrap();
    let named = format!("sbp-server-{}-", std::process::id());
    assert!(directory.starts_with(std::env::temp_dir()));
    assert!(directory.file_name().unwrap().to_string_lossy().starts_with(&named));
    assert!(directory.exists());
    server.shutdown().unwrap();
    assert!(!directory.exists());
}

#[test]
fn descriptors_are_those_of_listener_lock_and_connections() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(Some(directory.path()));
    let mut peer = Peer::connect(&server);
    peer.create("s");
    let held = held(&server);
    assert_eq!(
        held.iter()
            .filter(|target| target.to_string_lossy().starts_with("socket:"))
            .count(),
        2,
        "{held:?}"
    );
    assert_eq!(
        held.iter().filter(|target| target.ends_with("lock")).count(),
        1,
        "{held:?}"
    );
    server.shutdown().unwrap();
    assert_eq!(server.descriptors(), Vec::<i32>::new());
    // The port is free again.
    assert!(TcpListener::bind(server.local_addr()).unwrap().as_raw_fd() >= 0);
}

#[test]
fn ending_twice_and_dropping_are_harmless() {
    let server = start(None);
    server.shutdown().unwrap();
    server.shutdown().unwrap();
    assert_eq!(server.wait_for_failure(), None);
    drop(server);
    drop(start(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_stores_is_for_its_user_alone() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    let parent = tempfile::tempdir().unwrap();
    // One that is there stays as it is, and what is made in it is not for others.
    let there = parent.path().join("there");
    fs::create_dir(&there).unwrap();
    fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).unwrap();
    let fresh = parent.path().join("made").join("data");
    for data_dir in [&there, &fresh] {
        let server = start(Some(data_dir));
        let client = sbp_e2e::clients::client(server.address());
        let ids = sbp_e2e::clients::stream_ids(&client, &["private"]).await;
        let options = sbp_client::AppendOptions::default();
        client.append(ids[0], b"record".as_slice(), &options).await.unwrap();
        drop(client);
        tokio::task::spawn_blocking(move || server.shutdown().unwrap())
            .await
            .unwrap();
    }
    let mode = |path: &PathBuf| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&there), 0o755);
    let (mut to_see, mut files) = (vec![there.clone(), parent.path().join("made")], 0);
    while let Some(directory) = to_see.pop() {
        if directory != there {
            assert_eq!(mode(&directory), 0o700, "{}", directory.display());
        }
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                to_see.push(path);
            } else {
                files += 1;
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
    assert!(files > 5, "the log and the metadata of two servers: {files}");
}
