//! The id of a cluster whose placement driver keeps its metadata in its directory, and what becomes of directories that do not
//! belong to it.

use std::fs;
use std::path::Path;

use sbp_e2e::peer::Peer;
use sbp_e2e::servers::config;
use sbp_e2e::wait::until;
use sbp_messages::{Feature, HeartbeatRequest, HeartbeatResponse, features};
use sbp_server::{Monitor, RestoreOptions, Roles, Server, ServerConfig, StartError, back_up, restore};

use super::roles::placement_driver;

fn id(server: &Server) -> String {
    let request = HeartbeatRequest {
        features: vec![Feature::new(features::CLUSTER, "")],
        ..HeartbeatRequest::default()
    };
    until("the id of the cluster", || {
        let (answer, _): (HeartbeatResponse, _) = Peer::connect(server).call(&request, b"");
        features::find(&answer.features, features::CLUSTER).map(str::to_owned)
    })
}

fn range_server(directory: &Path, placement_driver: &Server, monitor: &Monitor) -> Server {
    Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![placement_driver.address().to_owned()],
        },
        listen: "127.0.0.1:0".to_owned(),
        monitor: monitor.clone(),
        ..config(Some(directory))
    })
    .unwrap()
}

/// The status page of a range server says all of this of its placement driver.
fn says(monitor: &Monitor, parts: &[&str]) {
    until("its words", || {
        let problems = monitor.readiness().problems;
        let mut texts = problems.iter().map(|problem| &problem.text);
        texts
            .any(|text| parts.iter().all(|part| text.contains(part)))
            .then_some(())
    });
}

/// It is registered at its placement driver.
fn is_registered(monitor: &Monitor) {
    until("the placement driver", || {
        monitor.readiness().problems.is_empty().then_some(())
    });
}

#[test]
fn a_placement_driver_that_is_set_up_anew_is_another_cluster_for_the_range_servers_of_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let [of_driver, aside, of_ranges] = ["pd", "aside", "rs"].map(|name| directory.path().join(name));
    let first = placement_driver(&of_driver, "127.0.0.1:0");
    let address = first.address().to_owned();
    let own = id(&first);
    let monitor = Monitor::default();
    let ranges = range_server(&of_ranges, &first, &monitor);
    is_registered(&monitor);
    assert_eq!(id(&ranges), own);
    let stream = Peer::connect(&first).create("kept");
    assert_eq!(Peer::connect(&ranges).store(stream, b"x"), 0);
    drop(first);
    fs::rename(&of_driver, &aside).unwrap();
    let anew = placement_driver(&of_driver, &address);
    let other = id(&anew);
    assert_ne!(own, other);
    let path = of_ranges.display().to_string();
    says(&monitor, &[&path, &own, &other, &address]);
    assert_eq!(
        Peer::connect(&ranges).fetch_all(stream, 0).len(),
        1,
        "it serves what it has"
    );
    drop((ranges, anew));
    // That stands in the directory.
    fs::rename(&of_driver, directory.path().join("anew")).unwrap();
    fs::rename(&aside, &of_driver).unwrap();
    let back = placement_driver(&of_driver, &address);
    assert_eq!(id(&back), own);
    let monitor = Monitor::default();
    let ranges = range_server(&of_ranges, &back, &monitor);
    is_registered(&monitor);
    assert_eq!(id(&ranges), own);
}

#[test]
fn a_restored_directory_belongs_to_the_cluster_that_it_was_backed_up_in() {
    let directory = tempfile::tempdir().unwrap();
    let [of_ranges, backup, restored] = ["rs", "backup", "restored"].map(|name| directory.path().join(name));
    let own = placement_driver(&directory.path().join("own"), "127.0.0.1:0");
    let other = placement_driver(&directory.path().join("other"), "127.0.0.1:0");
    let monitor = Monitor::default();
    let ranges = range_server(&of_ranges, &own, &monitor);
    is_registered(&monitor);
    ranges.shutdown().unwrap();
    back_up(&of_ranges, &backup, false).unwrap();
    let options = RestoreOptions {
        keep_number: true,
        ..RestoreOptions::default()
    };
    restore(&backup, &restored, options, &mut |_, _| {}).unwrap();
    let monitor = Monitor::default();
    let ranges = range_server(&restored, &other, &monitor);
    assert_eq!(id(&ranges), id(&own));
    says(&monitor, &[&restored.display().to_string(), &id(&own), &id(&other)]);
}

#[test]
fn what_a_range_server_had_at_a_backup_is_served_again_only_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let [of_ranges, backup, restored, kept] =
        ["rs", "backup", "restored", "kept"].map(|name| directory.path().join(name));
    let driver = placement_driver(&directory.path().join("pd"), "127.0.0.1:0");
    let monitor = Monitor::default();
    let ranges = range_server(&of_ranges, &driver, &monitor);
    is_registered(&monitor);
    let stream = Peer::connect(&driver).create("kept");
    assert_eq!(Peer::connect(&ranges).store(stream, b"before"), 0);
    ranges.shutdown().unwrap();
    back_up(&of_ranges, &backup, false).unwrap();
    // Others would count on it for what came since.
    let made = restore(&backup, &restored, RestoreOptions::default(), &mut |_, _| {}).unwrap();
    assert!(made.without_number);
    let refused = Server::start(ServerConfig {
        roles: Roles::RangeServer {
            placement_driver: vec![driver.address().to_owned()],
        },
        ..config(Some(&restored))
    });
    match refused {
        Err(StartError::RestoredMember { path }) => assert_eq!(path, restored),
        other => panic!("{other:?}"),
    }
    // Nobody else has it.
    let options = RestoreOptions {
        keep_number: true,
        ..RestoreOptions::default()
    };
    let made = restore(&backup, &kept, options, &mut |_, _| {}).unwrap();
    assert!(!made.without_number);
    let monitor = Monitor::default();
    let ranges = range_server(&kept, &driver, &monitor);
    is_registered(&monitor);
    assert_eq!(Peer::connect(&ranges).fetch_all(stream, 0).len(), 1);
}

#[test]
fn what_is_restored_of_a_range_server_says_so_also_where_it_has_no_ranges() {
    let directory = tempfile::tempdir().unwrap();
    let [of_ranges, backup, restored, again, once_more] =
        ["rs", "backup", "restored", "again", "once more"].map(|name| directory.path().join(name));
    let driver = placement_driver(&directory.path().join("pd"), "127.0.0.1:0");
    let monitor = Monitor::default();
    let ranges = range_server(&of_ranges, &driver, &monitor);
    is_registered(&monitor);
    ranges.shutdown().unwrap();
    back_up(&of_ranges, &backup, false).unwrap();
    let made = restore(&backup, &restored, RestoreOptions::default(), &mut |_, _| {}).unwrap();
    assert!(made.without_number);
    // Nor does what is made of it: there is no number left to keep.
    back_up(&restored, &again, false).unwrap();
    let options = RestoreOptions {
        keep_number: true,
        ..RestoreOptions::default()
    };
    restore(&again, &once_more, options, &mut |_, _| {}).unwrap();
    for directory in [restored, once_more] {
        let refused = Server::start(ServerConfig {
            roles: Roles::RangeServer {
                placement_driver: vec![driver.address().to_owned()],
            },
            ..config(Some(&directory))
        });
        match refused {
            Err(StartError::RestoredMember { path }) => assert_eq!(path, directory),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_directory_of_a_single_server_and_that_of_a_range_server_do_not_start_as_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let [alone, of_ranges] = ["alone", "rs"].map(|name| directory.path().join(name));
    Server::start(config(Some(&alone))).unwrap().shutdown().unwrap();
    let driver = placement_driver(&directory.path().join("pd"), "127.0.0.1:0");
    let monitor = Monitor::default();
    let ranges = range_server(&of_ranges, &driver, &monitor);
    is_registered(&monitor);
    ranges.shutdown().unwrap();
    let roles = Roles::RangeServer {
        placement_driver: vec![driver.address().to_owned()],
    };
    for (directory, roles) in [(&alone, roles), (&of_ranges, Roles::Both)] {
        let started = Server::start(ServerConfig {
            roles,
            ..config(Some(directory))
        });
        match started {
            Err(StartError::OtherRole { path, .. }) => assert_eq!(path, *directory),
            other => panic!("{other:?}"),
        }
    }
}
