//! Faults of the clocks, in the election core: suspend, pauses that no clock of the guest counts, a
//! wall clock that is set, clocks that are slewed. Test names contain the number of the fault.

use testkit::stores::two_node as small_world;

use small_world::{DEADLINE, LEASE, RETRY, Rates, World, ms};
use tenure::election::Reason;

const HOUR: u64 = 3_600_000;

/// The margin between the end of a belief and the expiry of its lease.
const MARGIN: u64 = LEASE - DEADLINE;

/// Stops a candidate's machine for this long, including its clocks.
fn freeze(world: &mut World, who: usize, millis: u64) {
    world.nodes[who].frozen_until = world.now + millis;
    world.pass(millis - 5);
}

#[test]
fn fault_07_after_a_suspend_of_60_s_the_first_question_is_answered_passive() {
    for asleep in [DEADLINE, LEASE, 60_000] {
        let mut world = World::led_by_the_first();
        let old = world.nodes[0].term().unwrap();
        freeze(&mut world, 0, asleep);
        // During suspend the boot and wall clocks advance, but the raw clock stands still.
        world.nodes[0].clock.boot += ms(asleep);
        world.nodes[0].clock.wall += ms(asleep);
        assert!(!world.nodes[0].says_leader(), "nothing of the election has run since");
        world.pass(60_000);
        assert_eq!(world.duals(), []);
        assert!(world.nodes[0].has_told(Reason::Lapsed));
        let again = world.reigns().iter().filter(|it| it.term == old);
        assert_eq!(again.count(), 1, "and the old term never comes back");
    }
}

/// Pauses the leader's whole machine at this time after a renewal. It cannot reach the store when
/// it continues, which is the worst case.
fn paused(after_renewal: u64, pause: u64, wall_is_set: bool) -> World {
    let mut world = World::led_by_the_first();
    world.pass(after_renewal);
    world.nodes[0].cut_off = true;
    freeze(&mut world, 0, pause);
    if wall_is_set {
        world.nodes[0].clock.wall += ms(pause);
        assert!(!world.nodes[0].says_leader(), "the wall clock shows the pause");
    }
    world.pass(40_000);
    world
}

#[test]
fn fault_08_a_pause_that_no_clock_sees_makes_no_dual_up_to_the_margin() {
    for after_renewal in (0..2 * RETRY).step_by(155) {
        for pause in [1_000, 3_000, MARGIN - 500, MARGIN] {
            let world = paused(after_renewal, pause, false);
            assert_eq!(world.duals(), [], "{after_renewal} ms after a renewal, for {pause} ms");
            assert!(world.nodes[1].says_leader(), "the other leads in the end");
        }
    }
}

#[test]
fn fault_08_beyond_the_margin_only_the_term_fences() {
    let world = paused(0, MARGIN + 200, false);
    let duals = world.duals();
    assert_eq!(duals.len(), 1, "this is what no clock of the guest can know");
    let (old, new) = duals[0];
    assert!(new.term > old.term, "a resource that checks terms refuses the old leader");
}

#[test]
fn fault_08_beyond_the_margin_a_wall_clock_that_was_set_right_ends_the_belief() {
    for pause in [MARGIN, 2 * MARGIN, 60_000] {
        let world = paused(0, pause, true);
        assert!(world.nodes[0].has_told(Reason::ClockJumped), "R10");
        assert_eq!(world.duals(), []);
        assert!(world.nodes[1].says_leader());
    }
}

#[test]
fn fault_09_a_wall_clock_set_by_an_hour_costs_one_renewal_and_no_term() {
    for forward in [true, false] {
        for stepped in [0, 1] {
            let mut world = World::led_by_the_first();
            let term = world.nodes[0].term();
            let wall = &mut world.nodes[stepped].clock.wall;
            *wall = if forward { *wall + ms(HOUR) } else { *wall - ms(HOUR) };
            assert_eq!(world.nodes[0].says_leader(), stepped != 0, "judged at the first question");
            assert!(!world.nodes[0].has_told(Reason::ClockJumped));
            world.pass(30_000);
            assert_eq!(world.nodes[0].has_told(Reason::ClockJumped), stepped == 0);
            assert!(world.nodes[0].says_leader(), "a renewal sent after the jump restored it");
            assert_eq!((world.nodes[0].term(), world.reigns().len()), (term, 1));
        }
    }
}

#[test]
fn fault_09_a_wall_clock_set_by_an_hour_never_shortens_a_wait_for_a_dead_leader() {
    for forward in [true, false] {
        let mut world = World::led_by_the_first();
        world.nodes[0].cut_off = true;
        let wall = &mut world.nodes[1].clock.wall;
        *wall = if forward { *wall + ms(HOUR) } else { *wall - ms(HOUR) };
        world.pass_until_leads(1);
        world.pass(10_000);
        assert_eq!(world.duals(), []);
    }
}

#[test]
fn fault_09_clocks_slewed_by_8_percent_make_no_dual() {
    // NTP slews the boot and wall clocks of a machine, but not the raw clock.
    for leader in [0.92, 1.0, 1.08] {
        for other in [0.92, 1.0, 1.08] {
            for pause in [1_000, MARGIN] {
                let mut world = World::led_by_the_first();
                let slewed = |rate| Rates { boot: rate, raw: 1.0, wall: rate };
                world.nodes[0].rates = slewed(leader);
                world.nodes[1].rates = slewed(other);
                world.pass(30_000);
                assert_eq!(world.reigns().len(), 1, "a slew alone costs no term");
                assert!(!world.nodes[0].has_told(Reason::ClockJumped));
                world.nodes[0].cut_off = true;
                freeze(&mut world, 0, pause);
                world.pass(40_000);
                assert_eq!(world.duals(), [], "slewed to {leader} and {other}");
                assert!(world.nodes[1].says_leader());
            }
        }
    }
}
