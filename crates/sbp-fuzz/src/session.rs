//! Two sessions driven by operations: requests, answers, time, GOAWAY, bytes in any pieces, bytes that nobody wrote.
//!
//! At any time: each own call is heard of until it ends, and then never again; what arrives is what was sent, in order;
//! limits hold; and sessions that nobody meddles with do not accuse each other. `world.rs` checks.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sbp_frame::OpCode;

use crate::vectors;
use crate::world::{Side, World};

const OPCODES: [OpCode; 5] = [
    OpCode::APPEND,
    OpCode::FETCH,
    OpCode::PING,
    OpCode::HEARTBEAT,
    OpCode::CREATE_STREAMS,
];

/// The bytes are a script.
pub fn run(data: &[u8]) {
    let mut script = Unstructured::new(data);
    let mut world = World::new();
    while !script.is_empty() {
        if step(&mut world, &mut script).is_err() {
            break;
        }
        world.settle();
    }
    world.finish();
}

/// One operation: a byte for what and who, then its arguments.
fn step(world: &mut World, script: &mut Unstructured<'_>) -> Result<()> {
    let what: u8 = script.arbitrary()?;
    let side = if what & 0x80 == 0 { Side::Client } else { Side::Server };
    match what & 0x0f {
        0 | 1 => {
            // A server asks nothing but whether the client is there.
            let opcode = match side {
                Side::Client => *script.choose(&OPCODES)?,
                Side::Server => OpCode::PING,
            };
            let deadline = script.arbitrary::<Option<u16>>()?.map(u64::from);
            world.ask(side, opcode, length(script)?, deadline);
        }
        2 | 3 => world.write(side, size(script)?),
        4 | 5 => world.read(side, size(script)?),
        6 => {
            world.write(side, usize::MAX);
            world.read(Side::Server, usize::MAX);
            world.read(Side::Client, usize::MAX);
        }
        7 => world.answer(
            side,
            script.arbitrary::<u8>()?.into(),
            length(script)?,
            script.arbitrary()?,
        ),
        8 => world.refuse(side, script.arbitrary::<u8>()?.into()),
        9 => world.wait(side, script.arbitrary::<u8>()?.into()),
        10 => world.cancel(side, script.arbitrary::<u8>()?.into()),
        11 => world.pass(Duration::from_millis(u64::from(script.arbitrary::<u16>()?))),
        12 => world.go_away(side),
        13 => {
            let count = usize::from(script.arbitrary::<u8>()?).min(script.len());
            world.inject(side, script.bytes(count)?);
        }
        14 => world.corrupt(side, script.arbitrary::<u16>()?.into(), script.arbitrary()?),
        _ => match script.arbitrary::<u8>()? {
            0 => world.hang_up(side),
            1 => world.close(side),
            _ => {}
        },
    }
    Ok(())
}

/// Bytes of a payload: mostly few.
fn length(script: &mut Unstructured<'_>) -> Result<usize> {
    let short = usize::from(script.arbitrary::<u8>()?);
    Ok(if short < 250 { short } else { (short - 249) * 10_000 })
}

/// Bytes to move: mostly few.
fn size(script: &mut Unstructured<'_>) -> Result<usize> {
    let small = usize::from(script.arbitrary::<u8>()?);
    Ok(if small < 200 { small } else { (small - 199) * 1_000 })
}

/// Scripts that go through a call, a long answer, a wait, an end; and one that puts every frame of the vectors on the wire.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    const FLOW: u8 = 6;
    let ask = [0, 0, 0, 20];
    let answer = [0x87, 0, 30, 1];
    let part = [0x87, 0, 200, 0];
    let back = [0x80 | FLOW];
    let mut seeds = vec![
        [&ask[..], &[FLOW], &answer, &back].concat(),
        [&ask[..], &ask, &[FLOW], &part, &back, &part, &back, &answer, &back].concat(),
        [&ask[..], &[FLOW], &[0x89, 0], &[11, 0, 40], &answer, &back].concat(),
        [&ask[..], &[FLOW], &[0x8c], &back, &answer, &back].concat(),
        [
            &ask[..],
            &[0x02, 7, 0x84, 3, 0x02, 9, 0x84, 200],
            &[10, 0],
            &[FLOW],
            &answer,
            &back,
        ]
        .concat(),
        [&ask[..], &[14, 5, 0, 1], &[FLOW]].concat(),
    ];
    for (_, file) in vectors::files("frames") {
        for (_, bytes) in file.iter().flat_map(|vector| &vector.parts) {
            let count = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
            let some = &bytes[..usize::from(count)];
            seeds.push([&[0x8d, count], some, &[0x84, 255]].concat());
        }
    }
    seeds
}
