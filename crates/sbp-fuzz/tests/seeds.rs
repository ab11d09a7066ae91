//! Every target over its seeds and their neighbours: what `cargo test` can do without the fuzzer.

use sbp_fuzz::TARGETS;

/// Inputs near the seed: cut short, and with bytes changed by a fixed rule.
fn neighbours(seed: &[u8], changes: usize) -> Vec<Vec<u8>> {
    let mut state = seed
        .iter()
        .fold(0x9e37_79b9_u32, |state, byte| state.rotate_left(5) ^ u32::from(*byte));
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    let mut inputs = vec![seed.to_vec(), seed[..seed.len() / 2].to_vec()];
    for _ in 0..changes {
        let mut input = seed.to_vec();
        for _ in 0..=next() % 3 {
            let place = next() % input.len().max(1);
            if let Some(byte) = input.get_mut(place) {
                *byte = next().to_le_bytes()[0];
            }
        }
        inputs.push(input);
    }
    inputs
}

fn play(name: &str, changes: usize) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let seeds = (target.seeds)();
    assert!(seeds.len() > 5, "{name} has {} seeds", seeds.len());
    for input in seeds.iter().flat_map(|seed| neighbours(seed, changes)) {
        (target.run)(&input);
    }
}

#[test]
fn frame() {
    play("frame", 60);
}

#[test]
fn message() {
    play("message", 120);
}

#[test]
fn batch() {
    play("batch", 400);
}

#[test]
fn session() {
    play("session", 120);
}

#[test]
fn recovery() {
    play("recovery", 6);
}

#[test]
fn stranger() {
    play("stranger", 200);
}

#[test]
fn bundle() {
    play("bundle", 2_000);
}

#[test]
fn tank() {
    play("tank", 1_000);
}

#[test]
fn seastar() {
    play("seastar", 1_000);
}

#[test]
fn controller() {
    play("controller", 10);
}

#[test]
fn pravega() {
    play("pravega", 500);
}

#[test]
fn names() {
    play("names", 2_000);
}

/// What fuzzing has found and what was then mended: `findings/<target>/<what it was>`.
#[test]
fn findings() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/findings");
    let mut played = 0;
    for target in TARGETS {
        let Ok(entries) = std::fs::read_dir(format!("{folder}/{}", target.name)) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("a readable folder").path();
            (target.run)(&std::fs::read(path).expect("a readable file"));
            played += 1;
        }
    }
    assert!(played > 0, "there are findings");
}

#[test]
fn every_target_has_a_test() {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(
        names,
        [
            "frame",
            "message",
            "batch",
            "session",
            "recovery",
            "stranger",
            "bundle",
            "tank",
            "seastar",
            "pravega",
            "controller",
            "names"
        ]
    );
}
