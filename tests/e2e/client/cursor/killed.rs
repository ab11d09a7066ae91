//! Holders and servers that are killed.

use std::collections::HashMap;

use rustix::process::Signal;
use sbp_e2e::clients::{client, streams};
use sbp_e2e::process::Setup;
use sbp_e2e::wait::bounded;
use sbp_frame::OpCode;
use sbp_proxy::{Proxy, ProxyConfig};
use sbp_types::Offset;

use super::child::{Holder, Said};
use super::{bounds, commit, fill, hold, open, places, server, watch};

/// More records than a holder commits before it is killed.
const PLENTY: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_killed_between_append_and_trim_leaves_nothing_but_work() {
    let proxy = Proxy::start(ProxyConfig::default()).unwrap();
    let server = server(Some(proxy.address()));
    let address = server.local_addr().to_string();
    proxy.set_target(Some(address.clone()));
    let direct = client(&address);
    let orders = streams(&direct, &["orders"]).await;
    fill(&direct, &orders[0], PLENTY).await;

    let mut trim = hold(&proxy, |rule| rule.opcode(OpCode::TRIM_STREAMS).requests());
    let mut holder = Holder::start(&proxy.address(), i64::MAX, false);
    holder.go();
    let trim = bounded(trim.recv()).await.expect("it trims after so many commits");
    let said = holder.kill();
    trim.discard();
    let Some(&Said::Committed(last)) = said.last() else {
        panic!("it committed before it trimmed")
    };

    let next = open(&client(&proxy.address()), "job", &orders).await;
    let (earliest, latest) = bounds(&direct, next.stream()).await;
    assert_eq!(earliest, 0, "nothing was trimmed");
    let found = places(&next)[0];
    assert!(
        found == latest && (last..=last + 1).contains(&found),
        "the last commit counts, told or not: {found} of {latest}, {last} told"
    );
    let mut trimmed = watch(&proxy, |rule| rule.opcode(OpCode::TRIM_STREAMS).answers());
    commit(&next, &orders[0], found + 1).await.unwrap();
    bounded(trimmed.recv()).await.unwrap();
    assert_eq!(bounds(&direct, next.stream()).await, (latest, latest + 1));
    assert_eq!(places(&open(&direct, "job", &orders).await), [found + 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_holder_was_killed_before_the_answer_counts() {
    let proxy = Proxy::start(ProxyConfig::default()).unwrap();
    let server = server(Some(proxy.address()));
    let address = server.local_addr().to_string();
    proxy.set_target(Some(address.clone()));
    let direct = client(&address);
    let orders = streams(&direct, &["orders"]).await;
    fill(&direct, &orders[0], PLENTY).await;

    let mut answer = hold(&proxy, |rule| rule.opcode(OpCode::APPEND).answers());
    let mut holder = Holder::start(&proxy.address(), i64::MAX, false);
    holder.go();
    let answer = bounded(answer.recv()).await.expect("the server answers");
    assert!(holder.kill().is_empty(), "nobody was told");
    drop(answer);
    let next = open(&direct, "job", &orders).await;
    assert_eq!(places(&next), [1]);
    let own = next.commit(vec![(orders[0].stream_id, Offset(2))], None);
    bounded(own).await.unwrap();
}

/// Two processes count one cursor up, each opening it anew for each commit, while the server is killed under them, and
/// one of them too. Every number that is told as committed is told once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_never_commit_the_same_place() {
    const GOAL: i64 = 250;
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(dir.path());
    let mut server = setup.start();
    let address = server.address.clone();
    setup.listen.clone_from(&address);
    let client = client(&address);
    let orders = streams(&client, &["orders"]).await;
    fill(&client, &orders[0], usize::try_from(GOAL).unwrap()).await;

    let start = || Holder::start(&address, GOAL, true);
    let mut holders = vec![start(), start()];
    holders.iter_mut().for_each(Holder::go);
    let mut said = Vec::new();
    let mut reached = 0;
    for round in 1..=5 {
        // Until one of them has come so far.
        while reached < round * GOAL / 7 {
            for holder in &holders {
                let Some(next) = holder.next() else { continue };
                said.push(next);
                if let Said::Committed(place) = next {
                    reached = reached.max(place);
                }
            }
        }
        server.end(Signal::KILL);
        server = setup.start();
        if round == 3 {
            said.extend(holders.swap_remove(0).kill());
            let mut another = start();
            another.go();
            holders.push(another);
        }
    }
    for holder in holders {
        said.extend(std::iter::from_fn(|| holder.next()));
        holder.join();
    }
    let mut counts: HashMap<i64, u32> = HashMap::new();
    for said in &said {
        if let Said::Committed(place) = said {
            *counts.entry(*place).or_default() += 1;
        }
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "committed twice: {twice:?}");
    let taken = said.iter().filter(|said| **said == Said::Taken).count();
    assert!(taken > 0, "they never met");
    // What was not told was stored by one that was killed, or that did not hear of it.
    let untold = (1..=GOAL).filter(|place| !counts.contains_key(place)).count();
    let doubtful = said.iter().filter(|said| **said == Said::Doubtful).count();
    assert!(untold <= doubtful + 1, "{untold} were told nobody, {doubtful} in doubt");
    let last = open(&client, "job", &orders).await;
    assert_eq!(places(&last), [GOAL]);
    println!(
        "{} told, {taken} refused, {doubtful} in doubt, {untold} not told",
        counts.len()
    );
}
