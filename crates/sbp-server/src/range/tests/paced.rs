//! How much is sent of sealed ranges.

use std::sync::Arc;
use std::time::Duration;

use sbp_types::{Offset, Position};

use super::copies_rig::{Copies, asked, id};
use super::rig::{FIRST, job};

#[test]
fn copies_of_a_sealed_range_wait_while_more_than_the_bound_was_sent_and_a_write_back_does_not() {
    let mut copies = Copies::new(3, 2);
    for index in 0..6 {
        copies.append(job(index, 1_000));
    }
    copies.exchange(1);
    copies.primary().wait(6);
    let end = Position::start(Offset(6));
    assert_eq!(copies.vote(0), end);
    let primary = Arc::clone(&copies.primary().server);
    primary.bound_copies(1_000);
    let at = |millis| primary.feed_at(id(2), 2_500, false, Duration::from_millis(millis));
    let _written_back = asked(|done| primary.write_back(FIRST, &[id(2)], end, done));
    let feeds = [at(0), at(0)].map(|feed| (feed.entries.len(), feed.paced_until));
    assert_eq!(feeds, [(3, None), (3, None)], "appends wait for this");
    primary.disconnected(id(2));
    copies.end(0, 6);
    let _copied = asked(|done| primary.write_back(FIRST, &[id(2)], end, done));
    let first = at(0);
    assert_eq!((first.entries.len(), first.paced_until), (3, None));
    let waits = at(0);
    let until = waits.paced_until.expect("three seconds' worth is sent");
    assert_eq!((waits.entries.len(), waits.from_log), (0, None));
    assert!((2_900..3_900).contains(&until.as_millis()), "{until:?}");
    assert_eq!(at(2_000).entries.len(), 0);
    let rest = primary.feed_at(id(2), 2_500, false, until);
    assert_eq!((rest.entries.len(), rest.paced_until), (3, None));
}
