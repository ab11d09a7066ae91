//! The rules that keep records, by name.

/// A rule without which some run loses a record, stores one twice, shows one that vanishes, or stands still.
///
/// Each is asked for where it is applied ([`Rules::hold`]), so that the code shows where it lies, and tests can break it. Three
/// are kept by whoever has a disk or a store, and applied by the tests' own world: a lost disk, a set that never changes, and a
/// range that is known before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A placement driver writes only while it leads: a deposed one changes nothing.
    DeposedDriverWritesNothing,
    /// A server that lost its disk is another server.
    LostDiskIsANewServer,
    /// Quorums are of the set as the range was opened, whatever its stream asks for since.
    QuorumsOfTheSet,
    /// The set of an open range never changes.
    SetNeverChanges,
    /// A follower takes only what continues its copy.
    OnlyWhatContinues,
    /// A follower answers, and a primary counts itself, when the entry is synced.
    AnsweredWhenSynced,
    /// Ends are compared with their marks.
    PositionsNotOffsets,
    /// An append is acknowledged when it is confirmed.
    AcknowledgedWhenConfirmed,
    /// A repeat is answered when what it repeats is confirmed.
    RepeatsWaitForConfirmed,
    /// Readers see what is confirmed.
    ReadersSeeConfirmed,
    /// What is confirmed never falls.
    ConfirmedNeverFalls,
    /// A primary that was restarted appends no more to a range that it shares.
    OneLife,
    /// A primary whose log dropped what was queued appends no more: an offset that was sent is never given again.
    OffsetsOnce,
    /// Every range but a stream's first begins with the state of all writers.
    WritersTravel,
    /// The state of the writers counts when all its parts are there.
    WritersCountWhole,
    /// A batch counts for its writer when it is confirmed.
    FoldedWhenConfirmed,
    /// At most so many entries of a range wait to be confirmed: a log that knows no better takes all before them for confirmed.
    UnconfirmedIsBounded,
    /// Nothing of a range that is older than the newest one folded is folded.
    OldRangesFoldNothing,
    /// A range that one server alone has goes on with the writers as that one knows them: a copy of it elsewhere says nothing of
    /// them.
    ContinuationTellsNoWriters,
    /// A fence is durable before its server votes.
    FenceBeforeVote,
    /// A fence survives restarts.
    FenceSurvives,
    /// A fenced primary takes nothing from clients.
    FenceHoldsAgainstClients,
    /// A fenced follower takes nothing from its primary.
    FenceHoldsAgainstPrimary,
    /// A seal needs one vote more than the servers that may be missing from an acknowledgement.
    Votes,
    /// The end is not below what any acknowledgement may rest on.
    End,
    /// A range that ends by force ends where the copies reach that are left, not where what they have lost begins.
    ForcedEndReaches,
    /// Before an end is stored, `acks` servers have everything up to it.
    WriteBack,
    /// What is written back counts when it is synced.
    WriteBackSynced,
    /// What a server answered before the order to send it something counts for that order no more: it may have lost since what it
    /// had then.
    AskedAnew,
    /// What is written back confirms nothing: it counts for its seal, not for the primary.
    WrittenBackConfirmsNothing,
    /// Of two ends the one that is stored first is the end.
    FirstEndWins,
    /// The next primary has everything up to the end.
    SuccessorIsComplete,
    /// The next primary knows the writers; a range in which nobody does is passed over.
    SuccessorKnowsWriters,
    /// Where a stream ends is told by its primary alone, once a quorum has said that it is not fenced.
    EndToldByTheLivingPrimary,
    /// A copy of a sealed range counts when all of it is synced.
    CopiesCountWhenSynced,
    /// A copy of which something cannot be read is not complete.
    DamagedIsIncomplete,
    /// A server that is told where a range ends, and lacks some of it, says so: it counts no more among those that have
    /// everything, whatever it had when it voted.
    IncompleteSaysSo,
    /// A server that does not know where its copy ends, because of damage, has no vote.
    DamagedEndIsNoVote,
    /// A server has made durable that it holds a range before it takes anything of it.
    KnownBeforeOpened,
    /// A server that is cut off from the others takes no new appends.
    CutOffServesNobody,
    /// Orders of an older term are refused.
    OlderTermsRefused,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 41] = [
        Self::DeposedDriverWritesNothing,
        Self::LostDiskIsANewServer,
        Self::QuorumsOfTheSet,
        Self::SetNeverChanges,
        Self::OnlyWhatContinues,
        Self::AnsweredWhenSynced,
        Self::PositionsNotOffsets,
        Self::AcknowledgedWhenConfirmed,
        Self::RepeatsWaitForConfirmed,
        Self::ReadersSeeConfirmed,
        Self::ConfirmedNeverFalls,
        Self::OneLife,
        Self::OffsetsOnce,
        Self::WritersTravel,
        Self::WritersCountWhole,
        Self::FoldedWhenConfirmed,
        Self::UnconfirmedIsBounded,
        Self::OldRangesFoldNothing,
        Self::ContinuationTellsNoWriters,
        Self::FenceBeforeVote,
        Self::FenceSurvives,
        Self::FenceHoldsAgainstClients,
        Self::FenceHoldsAgainstPrimary,
        Self::Votes,
        Self::End,
        Self::ForcedEndReaches,
        Self::WriteBack,
        Self::WriteBackSynced,
        Self::AskedAnew,
        Self::WrittenBackConfirmsNothing,
        Self::FirstEndWins,
        Self::SuccessorIsComplete,
        Self::SuccessorKnowsWriters,
        Self::EndToldByTheLivingPrimary,
        Self::CopiesCountWhenSynced,
        Self::DamagedIsIncomplete,
        Self::IncompleteSaysSo,
        Self::DamagedEndIsNoVote,
        Self::KnownBeforeOpened,
        Self::CutOffServesNobody,
        Self::OlderTermsRefused,
    ];
}

/// The rules that are in force: all of them, but for the one that a test breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    #[cfg(feature = "testing")]
    broken: Option<Rule>,
}

impl Rules {
    /// All rules but this one.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn without(rule: Rule) -> Self {
        Self { broken: Some(rule) }
    }

    /// Whether the rule is in force.
    #[must_use]
    pub fn hold(self, rule: Rule) -> bool {
        #[cfg(feature = "testing")]
        return self.broken != Some(rule);
        #[cfg(not(feature = "testing"))]
        {
            let _ = rule;
            true
        }
    }
}
