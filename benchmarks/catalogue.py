"""Every benchmark: what it is for, and about how many minutes it takes on two cores with nothing beside it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """``theses``: it does figures of the theses again, and is one of those that ``make bench`` runs; some
    that do take too long for it."""

    name: str
    shows: str
    minutes: float
    theses: bool = False


ENTRIES = (
    Entry("table_4_1", "PLink Table 4.1: rounds and bytes of each algorithm, counted", 0.2, True),
    Entry("alpha_agreement", "PLink Figure 4.4: alpha and the agreement of clusterings (AMI)", 1.5, True),
    Entry("probe_methods", "PLink 6.2.5: PAIA by the kind of probe, raw and embedded", 6, True),
    Entry("embedding", "PLink 6.2.5: what an embedding adds to PAIA, by alpha", 1.5, True),
    Entry("cost_models", "PLink Table 6.4: predicted against measured, by setup", 9, True),
    Entry("nccl_lab", "NCCL of 16 hosts that share a GPU (needs one): orders, collectives, sizes", 10),
    Entry("prediction_intervals", "measured over predicted times, and how many are inside their intervals", 30),
    Entry("order_spread", "PLink Figure 5.1: costs and run times of 500 random orders", 4, True),
    Entry("speedups", "PLink Figure 6.16: worst over best order, by algorithm and library", 7, True),
    Entry(
        "balance", "PLink Tables 2.1 and 6.3: what a step needs of links, money; advice against simulation", 0.3, True
    ),
    Entry("aggengine", "PLink Figures 6.12 to 6.14: AggEngine, 2LHA by probed, true and random groups", 10, True),
    Entry("autotune", "PLink Figure 6.15: a host that falls to a quarter of its rate", 8, True),
    Entry("autotune_notices", "changes that Autotune notices, and notices without one, in simulated time", 1),
    Entry("elastic", "Harlap Figures 4.10 to 4.15: stages, scaling, elasticity", 11, True),
    Entry("adaptive_probing", "a tenth of the pairs, simulated", 5),
    Entry("demo", "`plink demo`, three times", 5),
    Entry("grouping", "agreement of clusterings, and whether they are right", 6),
    Entry("launching", "what an order gains for real programs", 22),
    Entry("order_noise", "whether the gain that is promised is there", 5),
    Entry("order_rings", "rings against fast-tsp and their bounds (--seeds 1: 2 minutes)", 17),
    Entry("order_tsplib", "rings of TSPLIB against fast-tsp in equal time (needs the instances: --folder DIR)", 9),
    Entry("orders", "other collectives against plain annealing (--seeds 1: 6 minutes)", 10),
    Entry("parameter_server", "what goes through a server of AgileML's store", 3),
    Entry("cost_time", "time to compute a cost", 2),
    Entry("pipeline_planner", "plans of pipelines: against brute force, bounds, the clock (--seeds 20: a minute)", 4),
    Entry("referee", "costs against ranks that play schedules in SimGrid (--seeds 1: 4 minutes)", 60),
    Entry("lab_clock", "the simulator against the clock of a lab (--only 'ring, one tier': 3 minutes)", 25),
    Entry("simgrid", "the simulator against SimGrid", 3),
    Entry("order_models", "orders of `plink reorder`, simulated (--seeds 2: 9 minutes)", 90),
    Entry("mesh_lab", "orders of meshes in a lab: gains and seconds by traffic beside predictions", 7),
    Entry("mesh_orders", "orders of meshes against brute force, sorted racks and bounds (--part NAME; --quick)", 8),
    Entry("optimal", "all-reduces against the least possible time, made networks and a lab (--part NAME)", 6),
    Entry("advice", "faults that the doctor names, and false alarms", 17),
    Entry("changes", "changes of a network that `plink diff` names, and false alarms", 25),
    Entry("tiers", "tiers of shared links: found, measured, and what orders by them gain", 5),
    Entry("bml", "BML on a BCube against one interface (--only NAME: a part)", 9, True),
    Entry("hub", "all-reduces through hubs against Gloo, flat, 2LHA and MXNet (--only NAME: a part)", 20),
    Entry("bml_training", "what BML saves of a training's time, by model and sub-batch", 7, True),
    Entry("gain_coverage", "how often the interval of a predicted gain holds what another probe says", 6),
    Entry("probing", "time and accuracy of the probe", 9),
    Entry("spot", "Harlap Figures 4.1, 4.7 to 4.9: BidBrain against other strategies on made prices", 4),
    Entry("rules", "consistency rules and shares where workers are not equally fast (--only NAME: a part)", 10),
    Entry("transfers", "MLfabric: orders that keep their bound, groups on the way, Table 2 in simulated time", 8),
    Entry("ordered_lab", "MLfabric: updates a second on a lab, with and without an arbiter (--only RULE)", 13),
    Entry("rule_courses", "Zhao et al. Figure 4: consistency rules in simulated time", 0.3, True),
    Entry("zipline", "Zhao et al. Table II: the barrier of least wait, beside grid searches", 0.2, True),
    Entry("lookahead", "whether ZipLine's lookahead should pay for its uncertainty, in simulated time", 0.3),
    Entry("divergence", "bytes to replicas that may be behind by a bounded distance, and what a failure costs", 5),
    Entry("spot_deadlines", "deadlines of spot jobs on made prices: how many are missed, and regret", 3),
    Entry("spot_zones", "where to hold instances by the availability of zones, on made histories", 2),
    Entry("spot_drive", "the driver of spot machines killed 20 times: nothing left over, money to the cent", 8),
    Entry("spot_lab", "a job on a lab whose rented hosts are evicted, beside its simulation (--short: 2 minutes)", 6),
    Entry("flexrr", "stragglers that are helped, real servers (Harlap Figures 3.6 to 3.10; --only NAME: a part)", 7),
    Entry("helping_courses", "Harlap Figures 3.6 to 3.12: stragglers that are helped, in virtual time", 1.5),
    Entry("pipeline_lab", "pipelines on 4 hosts against data parallelism, depths, and the executor's own cost", 32),
    Entry("pipeline_racks", "pipelines on 16 hosts in 4 racks: predictions, gains, GPipe, placements, bytes", 50),
    Entry("pipeline_memory", "bytes that the ranks of pipelines hold, counted, beside predictions", 5),
    Entry("pipeline_learning", "what the delays of pipelines do to learning, small networks in one process", 4),
    Entry("report", "size of the page, and how fast it opens", 2),
)
NAMES = tuple(entry.name for entry in ENTRIES)
