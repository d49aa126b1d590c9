from plink.api.costing import Cost as Cost
from plink.api.costing import CostRequest as CostRequest
from plink.api.costing import cost as cost
from plink.api.diagnosing import Examination as Examination
from plink.api.diagnosing import diagnose as diagnose
from plink.api.diagnosing import examine as examine
from plink.api.launching import launch as launch
from plink.api.ordering import OrderRequest as OrderRequest
from plink.api.planning import PlanRequest as PlanRequest
from plink.api.planning import plan as plan
from plink.api.probe_request import ProbeRequest as ProbeRequest
from plink.api.probing import probe as probe
from plink.api.reordering import reorder as reorder
from plink.errors import HostError as HostError
from plink.errors import InputError as InputError
from plink.errors import NoAnswer as NoAnswer
from plink.errors import PartlyDone as PartlyDone
from plink.errors import PlinkError as PlinkError
from plink.errors import UsageError as UsageError
from plink.model.hosts import Host as Host
from plink.model.hosts import Hosts as Hosts
from plink.model.hosts import parse_hosts as parse_hosts
from plink.model.hosts import read_hosts as read_hosts
from plink.model.network import Network as Network
from plink.model.network import read_network as read_network
from plink.model.order import Order
from plink.model.order import read_order as read_order
from plink.model.plan import Plan as Plan
from plink.model.plan_file import read_plan as read_plan
from runners.job.job import Job as Job
from runners.job.result import RunResult as RunResult
from solvers.diagnosis.findings import Finding as Finding

RankOrder = Order
__version__: str
