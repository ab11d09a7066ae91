//! From the files of a broker.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sbp_client::Client;
use sbp_e2e::clients::client;
use sbp_e2e::servers;
use sbp_gateway::import::{ImportError, ImportFrom, import_tank};
use tokio::sync::oneshot;

use super::{bundle, import, imported, numbered, options, sparse, values, values_once};

/// A bundle behind its length.
fn framed(bundle: &Bytes) -> Vec<u8> {
    let mut length = bundle.len();
    let mut out = Vec::new();
    while length > 0x7f {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bundle);
    out
}

/// A broker's directory with partitions of one topic.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new(partitions: &[u16]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for partition in partitions {
            fs::create_dir_all(dir.path().join("t").join(partition.to_string())).unwrap();
        }
        Self { dir }
    }

    fn from(&self) -> ImportFrom {
        ImportFrom::Directory(self.dir.path().to_owned())
    }

    fn path(&self, partition: u16, name: &str) -> PathBuf {
        self.dir.path().join("t").join(partition.to_string()).join(name)
    }

    fn write(&self, partition: u16, name: &str, bundles: &[Bytes]) {
        let all: Vec<_> = bundles.iter().flat_map(framed).collect();
        fs::write(self.path(partition, name), all).unwrap();
    }
}

fn append(path: &Path, bytes: &[u8]) {
    File::options()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(bytes)
        .unwrap();
}

async fn service() -> (sbp_server::Server, Client) {
    let server = servers::start(None);
    let client = client(server.address());
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_files_and_the_current_one_are_read_in_their_order() {
    let (server, client) = service().await;
    let files = Files::new(&[0, 10]);
    files.write(0, "1-3_1700000000.ilog", &[bundle(&["a", "b"]), bundle(&["c"])]);
    files.write(0, "4-4.ilog", &[bundle(&["d"])]);
    files.write(0, "5_1700000001.log", &[bundle(&["e"]), bundle(&["f", "g"])]);
    files.write(10, "100.log", &[bundle(&["x"])]);
    // What has no messages of its own.
    for other in ["1-3.index", "1-3.ilog.cleaned", "4.swap", "4.old", "4.int", "repl"] {
        files.write(0, other, &[bundle(&["never"])]);
    }
    fs::write(files.dir.path().join("t/config"), "x").unwrap();
    let report = import(&client, &files.from(), &options("t")).await.unwrap();
    assert_eq!(imported(&report), [7, 1]);
    assert_eq!(report.notes, [""; 0]);
    assert_eq!(values(&client, "t/0").await, ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(
        super::property(&client, "t/10", "tank.first").await.as_deref(),
        Some("100")
    );
    // The broker has written on, and begun another file.
    fs::rename(files.path(0, "5_1700000001.log"), files.path(0, "5-8_1700000002.ilog")).unwrap();
    append(&files.path(0, "5-8_1700000002.ilog"), &framed(&bundle(&["h"])));
    files.write(0, "9.log", &[bundle(&["i"])]);
    let report = import(&client, &files.from(), &options("t")).await.unwrap();
    assert_eq!(imported(&report), [2, 0]);
    assert_eq!(
        values(&client, "t/0").await,
        ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
    );
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_cut_ends_the_current_file_and_damages_a_sealed_one() {
    let (server, client) = service().await;
    let files = Files::new(&[0]);
    let whole = framed(&bundle(&["c"]));
    files.write(0, "1.log", &[bundle(&["a"]), bundle(&["b"])]);
    append(&files.path(0, "1.log"), &whole[..whole.len() - 1]);
    let report = import(&client, &files.from(), &options("t")).await.unwrap();
    assert_eq!(imported(&report), [2]);
    assert!(report.notes[0].contains("no whole bundle"), "{:?}", report.notes);
    // The broker finishes it.
    append(&files.path(0, "1.log"), &whole[whole.len() - 1..]);
    assert_eq!(
        imported(&import(&client, &files.from(), &options("t")).await.unwrap()),
        [1]
    );
    assert_eq!(values(&client, "t/0").await, ["a", "b", "c"]);
    append(&files.path(0, "1.log"), &whole[..3]);
    fs::rename(files.path(0, "1.log"), files.path(0, "1-4.ilog")).unwrap();
    let error = import(&client, &files.from(), &options("t")).await.unwrap_err();
    assert!(matches!(&error, ImportError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("1-4.ilog"), "{error}");
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_gone_are_told_and_gaps_of_compaction_kept() {
    let (server, client) = service().await;
    let files = Files::new(&[0]);
    files.write(0, "1-2.ilog", &[bundle(&["a", "b"])]);
    assert_eq!(
        imported(&import(&client, &files.from(), &options("t")).await.unwrap()),
        [2]
    );
    // Retention has removed what came next; the file behind it is compacted.
    files.write(0, "6-9.ilog", &[sparse(&[(6, "f"), (9, "i")])]);
    let error = import(&client, &files.from(), &options("t")).await.unwrap_err();
    assert!(matches!(&error, ImportError::Lost { from: 3, to: 5, .. }), "{error}");
    let mut skipping = options("t");
    skipping.skip_lost = true;
    let report = import(&client, &files.from(), &skipping).await.unwrap();
    let partition = &report.partitions[0];
    assert_eq!((partition.imported, partition.lost, partition.left_out), (2, 3, 2));
    let text = |number, value: &str| (number, value.to_owned());
    let expected = [text(None, "a"), text(None, "b"), text(Some(6), "f"), text(Some(9), "i")];
    assert_eq!(numbered(&client, "t/0").await, expected);
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_are_refused() {
    let (server, client) = service().await;
    for (names, what) in [
        (&["1-5.ilog", "4-9.ilog"][..], "its messages are also in"),
        (&["1-5.ilog", "six.log"], "its name does not say"),
        (&["5-1.ilog"], "its name does not say"),
    ] {
        let files = Files::new(&[0]);
        for name in names {
            files.write(0, name, &[bundle(&["a"])]);
        }
        let error = import(&client, &files.from(), &options("t"))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
    }
    let files = Files::new(&[0]);
    fs::write(files.path(0, "1.log"), [2, 0x06, 0]).unwrap();
    let error = import(&client, &files.from(), &options("t"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("behind byte 0"), "{error}");
    let error = import(&client, &files.from(), &options("none")).await.unwrap_err();
    assert!(matches!(&error, ImportError::File { .. }), "{error}");
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_followed_as_they_grow() {
    let (server, client) = service().await;
    let files = Files::new(&[0, 1]);
    files.write(0, "1.log", &[bundle(&["a"])]);
    let (stop, stopped) = oneshot::channel::<()>();
    let (follower, from, mut following) = (client.clone(), files.from(), options("t"));
    following.follow = true;
    let import = tokio::spawn(async move {
        let stop = async { drop(stopped.await) };
        import_tank(&follower, &from, &following, stop, |_| ()).await
    });
    let wait = async |name: &str, count| values_once(&client, name, count).await;
    assert_eq!(wait("t/0", 1).await, ["a"]);
    let next = framed(&bundle(&["b"]));
    append(&files.path(0, "1.log"), &next[..2]);
    files.write(1, "1.log", &[bundle(&["x"])]);
    assert_eq!(wait("t/1", 1).await, ["x"]);
    append(&files.path(0, "1.log"), &next[2..]);
    assert_eq!(wait("t/0", 2).await, ["a", "b"]);
    append(&files.path(0, "1.log"), &framed(&bundle(&["c"])));
    fs::rename(files.path(0, "1.log"), files.path(0, "1-3.ilog")).unwrap();
    files.write(0, "4.log", &[bundle(&["d"])]);
    assert_eq!(wait("t/0", 4).await, ["a", "b", "c", "d"]);
    // The topic is given a partition, which the broker makes first and then writes to.
    fs::create_dir(files.path(2, "")).unwrap();
    append(&files.path(0, "4.log"), &framed(&bundle(&["e"])));
    assert_eq!(wait("t/0", 5).await, ["a", "b", "c", "d", "e"]);
    files.write(2, "100.log", &[bundle(&["new"])]);
    assert_eq!(wait("t/2", 1).await, ["new"]);
    append(&files.path(2, "100.log"), &framed(&bundle(&["newer"])));
    assert_eq!(wait("t/2", 2).await, ["new", "newer"]);
    let first = super::property(&client, "t/2", "tank.first").await;
    assert_eq!(first.as_deref(), Some("100"));
    stop.send(()).unwrap();
    let report = sbp_e2e::wait::bounded(import).await.unwrap().unwrap();
    assert_eq!(imported(&report), [5, 1, 2]);
    client.close().await;
    server.shutdown().unwrap();
}
