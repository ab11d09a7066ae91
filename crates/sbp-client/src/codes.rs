//! The codes of what goes wrong on this side of the connection. They never travel, and no peer can send them.

use sbp_messages::{ErrorCode, ErrorRule};

sbp_messages::error_codes! {
    9001 CONNECTION_FAILED Later not_done
        "no server could be reached, or the connection broke under a call that changes nothing"
        "check the address, and that the server runs and can be reached"
    9002 CONNECTION_LOST Now maybe
        "the connection broke before the answer came"
        "use a writer, which may send again without harm"
    9003 DEADLINE_BEFORE_SEND Later not_done
        "the time was over before anything was done, or under a call that changes nothing"
        "give a longer timeout, or do less at once"
    9004 DEADLINE_AFTER_SEND Never maybe
        "the time was over while the answer was awaited"
        "give a longer timeout, or use a writer, which may send again without harm"
    9005 CANCELLED Never maybe
        "the call was given up after it was sent"
        "wait for what is under way before everything is shut down"
    9006 FEATURE_NOT_OFFERED Never not_done
        "the server lacks a feature that the call needs"
        "upgrade the server, or do without"
    9007 BAD_ARGUMENT Never not_done
        "an argument is one that no server could accept"
        "correct the argument; the message names it"
    9008 BACK_PRESSURE Later not_done
        "this client has as much under way as it may"
        "wait for earlier calls, or raise the client's limits"
    9009 CLOSED Never not_done
        "the object was closed"
        "make a new one"
    9010 PROTOCOL_VIOLATION Never maybe
        "the peer broke the protocol"
        "check that the address is an SBP server's, and its version"
    9011 CORRUPT_ON_ARRIVAL Now not_done
        "data arrived damaged"
        "read it again, and check the network and the memory if it stays so"
    9012 FORKED_CLIENT Never not_done
        "the object was made before a fork, by the parent process"
        "make a new one in the child"
    9013 DATA_LOSS Never not_done
        "records between the place reached and the first one kept are gone"
        "decide whether to go on behind the gap"
    9014 CURSOR_TAKEN Never not_done
        "another holder of this cursor has committed"
        "open the cursor anew and go on from its positions, or stop"
    9015 SERVER_NOT_STARTED Never not_done
        "the embedded server did not start"
        "correct what the message names, and start it again"
    9016 PORT_TAKEN Never not_done
        "something else listens on the server's address"
        "stop it, or listen on another port; port 0 picks a free one"
    9017 DIRECTORY_LOCKED Never not_done
        "another server owns the data directory"
        "stop that one, or choose another directory"
    9018 BAD_SERVER_CONFIG Never not_done
        "the server was told something that cannot be"
        "correct the argument that the message names"
    9019 STREAM_REPLACED Never not_done
        "another stream has the number of the one that was meant: the server lost its data, or was set up anew"
        "ask for the stream by its name, and decide where to begin: offsets kept for the old one mean nothing in it"
    9020 TLS_FAILED Never not_done
        "TLS failed: one side does not accept the other's certificate, or only one of them speaks TLS"
        "correct the certificates, the address or the TLS settings; the message names what is wrong"

    // What goes wrong with TANK brokers.
    9301 TANK_FRAMING Never not_done
        "bytes of a TANK broker are not those of its protocol"
        "check that the address is a TANK broker's, and its version; a bundle that cannot be read is damaged where the broker keeps it"
    9302 TANK_LIMIT Never not_done
        "something is longer than a TANK broker, or this side, takes"
        "send shorter keys, and fewer messages at once; where the broker sent it, look at what it keeps"
    9303 TANK_COMPRESSION Never not_done
        "the compressed messages of a TANK broker's bundle are damaged"
        "read on behind the bundle, and look at the broker's disk"
    9304 TANK_PEER Never not_done
        "a TANK broker answered something else than it was asked"
        "check that the address is a TANK broker's, and its version"
    9305 TANK_REFUSED Later not_done
        "a TANK broker did not do what was asked"
        "the message says why; where it can be tried again, wait a moment"
    9306 TANK_LOST Later not_done
        "there is no connection to a TANK broker, or it was lost"
        "check the address, and that the broker runs and can be reached"
    9307 TANK_UNKNOWN_NAME Never not_done
        "the TANK broker has no such topic or partition"
        "create the topic, or check its name and how many partitions it has"
    9308 TANK_OUT_OF_RANGE Never not_done
        "the message is not between the first one that the TANK broker keeps and the last one"
        "read on, which begins with the first message kept where older ones are gone; or begin within what `partitions` says"

    // What goes wrong with peers that speak Seastar RPC.
    9401 SEASTAR_FRAMING Never not_done
        "bytes of a Seastar RPC peer are not those of the protocol, or not what the verb returns"
        "check that the address is that of a Seastar RPC service, and the types that the verb takes and returns"
    9402 SEASTAR_LIMIT Never not_done
        "something is longer than a frame of Seastar RPC may be, or is empty where it may not"
        "send less at once: a frame has at most 64 MiB; messages of a stream have at least one byte"
    9403 SEASTAR_COMPRESSION Never not_done
        "a compressed frame of a Seastar RPC peer is damaged"
        "connect without `compression`, and look at what stands between the two"
    9404 SEASTAR_PEER Never not_done
        "a Seastar RPC peer did what it should not, or a stream ended without its end"
        "the message says what; check the service's version, and whether it failed while the stream went on"
    9405 SEASTAR_REFUSED Never not_done
        "the handler of a verb has failed"
        "the message is the handler's"
    9406 SEASTAR_LOST Later not_done
        "there is no connection to a Seastar RPC service, or it was lost"
        "check the address, and that the service runs and can be reached"
    9407 SEASTAR_UNKNOWN_VERB Never not_done
        "the Seastar RPC service has no such verb"
        "check the number of the verb, and the service's version"
    9408 SEASTAR_OUT_OF_RANGE Never not_done
        "a number is none that its type can have"
        "give a number in the range of the type, or declare the verb with a wider one if that is what the service takes"
    // What goes wrong with Pravega's servers.
    9501 PRAVEGA_FRAMING Never not_done
        "bytes of a Pravega server are not those of its protocol, or bytes of a segment are no events"
        "check that the address is that of a segment store, or of a controller; a byte stream has no events and cannot be read as such"
    9502 PRAVEGA_LIMIT Never not_done
        "something is longer than Pravega, or this side, takes"
        "write events of 8 MiB at most; where the server sent it, look at what it keeps"
    9504 PRAVEGA_PEER Never not_done
        "a Pravega server answered something else than it was asked"
        "check that the address is that of a segment store, or of a controller, and its version"
    9505 PRAVEGA_REFUSED Later not_done
        "a Pravega server did not do what was asked"
        "the message says why; where it can be tried again, wait a moment"
    9506 PRAVEGA_LOST Later not_done
        "there is no connection to a Pravega server, or it was lost"
        "check the address, and that controller and segment store run and can be reached"
    9507 PRAVEGA_UNKNOWN_NAME Never not_done
        "Pravega has no such scope, stream or segment"
        "create the stream, or check its name, which is written scope/stream"
    9508 PRAVEGA_OUT_OF_RANGE Never not_done
        "the events are before the first byte that the segment keeps"
        "read on, which begins with the first event kept; or begin within what `segments` says"
}

/// The rule of any code: of this side's here, of a server's in its own table.
#[must_use]
pub fn rule(code: ErrorCode) -> ErrorRule {
    row(code).unwrap_or_else(|| code.rule())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_from_the_first_of_this_side_and_meaning_and_advice_are_sentences() {
        assert!(ALL.is_sorted_by(|a, b| a.0 < b.0));
        for code in ALL {
            assert!(code.is_local(), "{code}");
            assert!(!ErrorCode::ALL.contains(code), "{code}");
            let rule = rule(*code);
            for text in [rule.meaning, rule.advice] {
                assert!(text.len() >= 7, "{code}");
                assert!(!text.ends_with('.'), "{code}: the caller ends the sentence");
            }
            assert_ne!(rule.meaning, rule.advice, "{code}");
        }
        assert_eq!(rule(ErrorCode::NOT_FOUND), ErrorCode::NOT_FOUND.rule());
    }
}
