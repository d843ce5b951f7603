"""Common English words: what, capitalised at a sentence's opening, is no name.

Compact on purpose: inflections are brought to their stem, and typical endings (-ing, -tion, -ly …) need no entry.
A word missing here costs an agent one more entry in `dropping`; a name listed here could be lost at an opening,
so words that are as well given names or surnames are left out where the name is the likelier reading.
"""

from collections.abc import Iterator

from refinement.specifics.text import listed

# Say nothing by themselves: never a name, and no part of what a negation governs.
FUNCTION_WORDS = frozenset(
    listed("""
a an the this that these those i me my mine myself we us our ours ourselves you your yours yourself he him his himself
she her hers herself it its itself they them their theirs themselves who whom whose which what when where why how
am is are was were be been being have has had having do does did doing done can could will would shall should may might
must ought need and or but nor so yet if then than as at by for from in into of off on onto out over to up with within
about above across after against along among around before behind below beneath beside besides between beyond down
during except inside near outside past per since through throughout toward towards under until till upon via
while whereas because although though however therefore thus hence also too very just only even still already again
ever there here any some all both each every either such same other another own more most less least much many few
several enough quite rather almost really always often sometimes usually never not no none i'm i've i'd i'll it's
he's she's that's there's they're we're you're they've we've let's ok okay yes etc eg ie
""")
)

_COMMON = frozenset(
    listed("""
abandon ability able abort absence absolute academic accept access accident accord account accuracy achieve act action
active activity actor actress actual adapt adapter add added address adjective adjust admin administrator admire admit
adopt adoption adult advance advantage adventure advice advise aerial affair affect afford afraid afternoon age agency
agenda agent ago agree agreed ahead air airport alarm alert alerting algorithm alike allergen allergic allergy
allocate allotment allow allowlist alone alongside already alter alternative amazing amid amount analyse analysis
analyze ancient anger angry animal anime anniversary announce annoy annual anonymous answer anxiety anxious anybody
anymore anyone anything anyway anywhere apart apartment api apiece apis app apparently appear append apple application
apply appoint appointment appreciate apprentice approach appropriate approval approve approximate aquarium archaeology
architect architecture archive area argue argument arithmetic arm army arrange array arrival arrive arthritis article
artist aside ask asked asleep aspect aspire aspirin assert assertion assess asset assign assist assistant associate
assume assure asthma astronomy async ate atheist atomic attach attack attacker attempt attend attention attitude
attorney attract audience audit aunt author authority auto autocomplete automatic autoscaling available average
avocado avoid award aware away awesome axe baby back backend backfill background backlog backpack backup bad badge bag
bake baker bakery balance balancer ball ballet ban banana band bank bar barbecue barely barista base baseball basic
basically basil basis basketball bassist bastion batch bath battery beach bean bear beard beat beautiful beauty became
become bed bedroom beef beer began begin behavior behaviour belief believe believes belong benefit best bet better
bicycle big bike bill billion binary bind biochemist biochemistry biologist biology bird birth birthday bit bitten
black blame blank blend blind block blocklist blog blood blow blue blueberry board boat body book bookshelf bookstore
boolean boot border bored boring born borrow boss botany bother bottle bottom bought bound boundary bowl box boxing
boy brain branch brand bread break breaker breakfast breath breathe bridge brief bright bring broad broccoli broken
broker brother brought brown browse browser brunch brush budget bug build builder built bulk burn bus business busy
butcher butter button buy bypass byte bytecode cabin cache cactus cake calcium calendar call calm came camera camp
campaign camper canary cancel cancer candidate candle candy cannot cap capital car card cardio care career careful
carpenter carpentry carpet carrot carry cart case cash cashier cat catch category caught cause caution cd celebrate
celery cell center central centre century ceramics cereal ceremony certain certainly certificate chain chair challenge
chance change changelog channel chapter character charge charger charity chart chat cheap check checksum cheese chef
chemist chemistry chess chicken chief child childhood children chip chocolate choice choose chose chosen church ci
cider cilantro cinnamon cipher circle circuit citizen city civil claim class classic classify clean cleaner cleanup
clear clearly click client climate climb clinic clock clone close closet cloth clothes clothing cloud club cluster
coach coat cobbler coconut code codebase codegen coffee cold collaborate colleague colleagues collect college color
colour column combine come comedy comfort comfortable comic comma command comment commercial commit common communicate
community commute company compare compatibility compete compile compiler complain complete complex complexity
component compose composer compress computer concentrate concept concern concerning concert concise concurrent
condition conduct conference confess confidence confident config configure confirm confirmed conflict confuse connect
conscious consent consider consist console consolidate constant constraint construct consult consume consumer contact
contain container contemporary content contest context contextual continue contract contrast contribute control
convenience convert convince cook cookie cool copilot copy core coriander corner coroutine correct cost costume
cottage cough count countdown counter country couple courage courier course court cousin cover coverage cpu crash
crazy create creative credential credit crew cricket crime critical criticism crochet croissant cron cross crowd cry
cryptography css cucumber cultural culture cup cure curious currency current currently curry curve custom customer cut
cycle cyclist dad daily dairy damage dance dancer danger dangerous dark dashboard data database dataframe dataset date
daughter day dead deadline deadlock deal dear death debate debounce debug debugger decade decaf decide decided
decision deck declare decline decorate decorator dedicate deep default defeat defence defend defense define definite
degree delay delegate delete deletion deliver demand demo democratic dentist deny denylist depend dependency deploy
deprecation depress depth derive describe deserializer desert deserve design desire desk despite dessert destroy
destructive detail detect determine deterministic develop device devote diabetes diagnose dialect dialog diary diet
dietary diff differ difference different difficult difficulty dig digest digital dinner direct direction director
directory dirty disable disappear disappoint disaster discard discount discover discuss discussed disease dish disk
dislike dislikes display distance distinct district disturb divide divorce dns doc dockerfile docstring doctor
document dog dollar domain done door double doubt download downstream downtime draft drag drama drank draw drawer
drawing dream dress drift drink drive driven driver drop drove drug drum drummer dry dual due dump dumpling duplicate
duration dust duty each eager earlier earliest early earn earth ease easel easily east eastern easy eat eaten echo
economic economy eczema edge edit editor education effect effective efficient effort egg eight eighteen eighth eighty
either elbow elder elect electric electrician element elevator eleven eliminate else elsewhere email embed embrace
embroidery emergency emotion emotional emphasis employ employee employer empty emulator enable encourage encrypt end
endpoint enemy energy enforce engage engine engineer enjoy enjoys enough enqueue ensure enter entire entirely entrance
entry env environment environmental equal equip erasure error escape especially espresso essay essential establish
estimate evaluate evening event eventual eventually everybody everyone everything everywhere evidence evolve exact
exactly exam examine example exceed excellent exception exchange excite exclude excuse execute executive exercise
exhaust exist exit expand expect expense expensive experience experiment expert expire expiry explain explanation
explicit explore export expose express extend external extra extreme eye eyesight fabric face facility fact factor
fail failover failure fair fall fallback fallen false familiar family famous fan fancy fantastic far farm farmer
fashion fast father fault favor favorite favour favourite fear feature fed federal fee feed feedback feel feels fell
fellow felt female fence ferry festival fetch few fewer fiance fiancee fiction field fifteen fifth fifty fight figure
file filesystem fill film filter final finally finance financial find finds fine finger finish fire firefighter
firewall firm firmware first firstly fish fit five fix fixture flag flat flavor flew flexible flight float floor
florist flow flower flown fluent flush fly focus folder folks follow following food fool foot football forbidden force
foreign forest forever forge forget forgive forgot forgotten form formal format formatter former formerly forth
fortunate forty forum forward foster fought found foundation four fourteen fourth frame framework free freedom freeze
frequency frequent frequently fresh fridge friend friendly front frontend fruit fulfil fulfill full fully fun function
functionality fund fundamental funny furniture further furthermore future gain gallery game garage garden gardener
garlic gas gate gateway gather gave gc gender general generally generate generous genre gentle genuine geology get
gift girl give given glad glass global glove gluten go goal god goes gold golden gone good goroutine got govern
government gpu gracefully grade gradual graduate grammar grand grandchildren grandfather grandmother grandparent
grandparents grandson grant granular grape graph graphic grateful grave gravel great green greet grew grid grocery
gross ground group grow grown growth guarantee guard guess guest guidance guide guideline guilt guitar gun guy guys
gym habit hair hairdresser half hall hamster hand handle handler handover handshake hang happen happily happiness
happy harbor harbour hard hardly hardware harm hash hate hates head headache header heading headphone health healthy
hear heard heart heartbeat heat heavy height held hello helmet help helper hence hero hers hesitate heuristic hi hid
hidden hide high highlight highly hike hiker hill hint hip hire historian history hit hobby hockey hold hole holiday
home honest honestly honey honor honour hook hopeful hopefully hopes horror horse horseback hospital host hostel
hostile hostname hot hotel hotfix hour house household housing html http https huge human humor humour hundred hungry
hurry hurt husband hypertension ibuprofen ice icon id idea ideal idempotent identical identifier identify identity
ignore ill illustrator image imagine immediate immediately impact implement implication import importance important
impose impossible impress improve incident include income incomplete increase incredible incredibly indeed independent
index indicate individual indoor industry infant infection infer inflation influence inform information infrastructure
ingress initial initially initiative inject injury inner innocent input inquiry insert insight insist insomnia inspect
inspire install instance instant instead instruct instruction instructor instrument insulin insurance intact integrate
intend intense intent interact interaction interactive interest interesting interface internal international internet
internship interpret interrupt interview introduce invalid invent invest investigate invite invoice involve iron
island isolate issue item iteration iterator jacket jazz jeans job jog jogging join joint joke journal journalist
journey json judge juggling juice jump junior jury justice justify kayak keen keep keeps kept kernel keto kettle key
keyboard keys keystore kick kid kill kind king kiss kitchen kitten knee knew knife knitting knock know knowledge known
lab label labor labour lack lactose ladies lady laid lake lambda lamp land landlady landlord language laptop large
largely lasagne last lastly late lately latency later latest latte laugh launch law lawn lawyer lay layer layout lazy
lead leader leaf league leak learn lease leather leave lecture led ledger left leg legal legend lemon length lent
lentil lesson let letter lettuce level librarian library licence license lie life lift light like likely likewise
limit line linear linguist link lint linter list listen literal literature little live lives living lizard load
loadbalancer loan lobster local localhost locate location lock locksmith log logger logic login long look lookup loop
loopback lose loss lost lot loud loudly love lovely loves low luck lucky luggage lullaby lunch lyric machine made
magazine magic mail main mainly maintain maintenance major majority make makefile makeup male man manage manager
mandatory mango manual manually map marathon march margin markdown marker market marmalade marriage marry mask mass
massive master match mate material math mathematician mathematics matrix matter mattress maximum maybe mayor meal mean
meaning means meant meanwhile measure meat mechanic media median medical medicine meditate medium meet melody member
membership memory men mental mention mentioned mentor menu merchant merge mess message met metadata metal method
metric middle middleware midnight midwife migraine migrate migration mild mileage milestone military milk million
millisecond mind mindful mineral minimum minister minor minute mirror miss mission mistake mix mobile mock mode model
moderate modern modify module mom moment money monitor month monthly mood moon moral moreover morning mortgage
mosquito mostly mother motivate motor motorbike motorcycle mount mountain mouse mouth move movie muesli multi multiple
mum muscle museum mushroom music musician mustard mutex mutual mypy mystery name namespace naming nanny narrative
narrow nation national native natural naturally nature near nearby nearly neat necessary neck need needs negation
negative negotiate neighbor neighborhood neighbour neither nephew nerve nervous nest net network neutral nevertheless
new newest newline newly news newspaper next nice nickname niece night nightly nine nineteen ninety ninth nobody node
noise non nonetheless noodle normal normally north northern nose notable note notebook noted nothing notice
notification notify novel novelist now nowadays nowhere nuclear null number nurse nut nutrition oat oauth object
obtain obvious obviously occasion occasionally occupy occur ocean odd offer office officer official offline oil old
older olive oncall once one ongoing onion online onto open opera operate operation operator opinion opportunity oppose
opposite optimal optimistic option optional orange orchard orchestra orchestrator orchid order ordinary organic
organise organize origami origin original originally orm others otherwise ought outcome outdoor outfit outlook output
outside outsider oven overall overcome overdue override overtime overwrite owe own owner owns oyster pace pack package
page pagination paid pain paint painter pair palace pale pancake panel panic pant paper paprika paracetamol paragraph
parallel parameter parent parents park parrot parse parser part partial participant participate particular
particularly partition partner party pass passenger passion passive passport password past pasta pasture patch path
patience patient patio pattern pause pay payload peace peach peak peanut pear pediatric peer pen pending penicillin
pensioner people pepper peppermint perfect perfectly perform performance perfume perhaps period permalink permanent
permission permit person personal personally persuade pescatarian pet pharmacy phase philosophy phone photo photograph
phrase physical physically physicist physics piano pick pickle picnic picture piece pillow pilot pin pineapple pipe
pipeline pitch pizza place plain plaintext plan plane plans plant plastic plate platform play player please pleased
pleasure plenty plot plugin plumber plus pocket pod podcast poem poet poetry point police policy polite political
politics pollen poller pool poor pop popular pork porridge port portfolio position positional positive possess
possible possibly post postcard postmortem pot potato potential potentially potter pottery pound pour power powerful
pr practical practice practise praise prawn pray precise predict prefer preference prefers pregnant premium prepare
prescription presence present preserve president press pressure pretend pretty prevent preview previous previously
price pride primarily primary prime primitive principal principle print prior prioritise prioritize priority prison
privacy private prize pro probably problem procedure proceed process produce producer product profession professional
professor profile profiler profit program programme progress project promise promote prompt proof proper properly
property propose protect protein protest protocol proud prove provide provider proxy prs psychology public publish
pubsub pudding pull pump pumpkin punish puppy purchase pure purple purpose pursue push put puzzle quality quantity
quarter queen query question queue quick quickly quiet quietly quit quite quota quote rabbit race radio rain raise ram
ramen ran random rang range rank rapid rapidly rare rarely raspberry rate rather raw reach react read reader ready
real realise realistic reality realize reason reasonable rebase reboot rebuild recall receive recency recent recently
recipe recital recognise recognize recommend recommendation record recording recover recovery recruit recurring
recycle red redeploy redirect reduce refactor refactoring refer refine reflect refresh refuse regard regarding
regardless regex region register regret regular regularly rehearsal reject relate relationship relative relatively
relax release relevant reliable relief religion religious reluctant rely remain remark remember remembers remind
remote removal remove rename render renew rent rental repair repeat replace replica replication reply repo report
reported repository represent reptile request requested requester require requirement rescue research reserve reset
residence resident resist resolve resolver resort resource respect respond response responsibility responsible rest
restart restaurant restore restrict result resume retention retire retreat retrieval retrieve retry return reveal
revenue reverse review revise revoke reward rewrite rewritten rhythm rice rid ride right ring rise risk river road
robot rock rode role roll rollback rollout romance romantic roof room roommate root rotate rough roughly round route
router routine row rower rowing rpc rugby rule run runbook runner runs runtime rush sad sadly safe safely safety said
sail sailing sailor salad salary sale salmon salt sample sand sandbox sandwich sang sat satisfy sauce save saw
saxophone say says scale scan scare scarf scary scene schedule scheduler schema scheme scholar school science
scientist scope score scratch scream screen screenplay script scroll sculpture sea seafood seal sealed search seaside
season seat second secondly secret secretary section sector secure security see seed seek seem seen segment seldom
select self sell seminar send senior sense sensitive sent sentence separate sequence serializer series serious
seriously serve server service session set setting settings settle setup seven seventeen seventh seventy severe sex
shade shadow shake shall shape shard sharding share sharp sheet shelf shell shellfish shelter shift ship shirt shock
shoe shook shoot shop shopping short shortly shot shoulder shout show shower shown shrimp shut shy sibling sick side
sight sign signal signature significance significant silence silent silently silk silly silver similar similarity
similarly simple simply simultaneously sing singer single singleton sink sir sister sit site situation six sixteen
sixth sixty size skate skateboard sketch ski skill skin skincare skip sky slash sleep slept slice slide slight
slightly slim slip slow slowly slug small smart smell smile smoke smooth snack snake snapshot snow snowboard soap
soccer social society sociology sock socket sofa soft software soil solar sold soldier sole solid solo solution solve
somebody somehow someone something sometime somewhat somewhere son song soon soprano sorry sort sought soul sound soup
source south southern soy space spare speak speaks spec special specialist species specific specifically specify
speech speed spell spend spent spice spinach spirit spiritual split spoke spoken sponsor spoon sport spot spouse
spread spreadsheet spring sprint sql squash ssl sso stable stack stadium staff stage staging stair stakeholder stale
stamp stand standard standup star stare start state stateless statement station statistics status stay stderr stdout
steady steak steal steam step stepdaughter stepfather stepmother stepson stew stick stock stole stolen stomach stood
stop storage store storm story straight strange stranger strategy strawberry stream street strength stress stretch
strict strictly strike string strip strong strongly struct structure struggle student studies studio study stuff
stupid style subcommand subject submit submodule subnet subscribe subsequently substance subway succeed success
successful successfully such sudden suddenly suffer sufficient sugar suggest suggested suggestion suit suitable
suitcase sum summary sun sung sunrise sunset super supermarket superuser supply support suppose sure surely surf
surface surfer surgery surprise surprisingly surround survey survive sushi suspect suspend sustain swallow swam swap
sweater sweep sweet swim switch syllabus symlink symptom sync syntax system table tablet tag tailor take taken talent
talk tall target task taste tattoo taught tax taxi tea teach teacher teaches team teapot tear teardown tech technical
technically technique technology teenager telemetry telephone television tell temp temperature template temporarily
temporary ten tenancy tenant tend tends tennis tense tension tent tenth term terminal terrace terrible test testsuite
text thank thanks theater theatre theme theory therapist therapy thermostat thick thin thing think thinks third
thirteen thirty thought thousand thread threadpool threat threaten three threshold threw thrill thriller throttle
throughput throw thrown ticket ticketing tidy tie tight till time timeline timeout timer timeseries timestamp timezone
tiny tip tire title tls toast today toddler toe tofu together toilet token tokenizer told tomato tomorrow tone tonight
took tool toolchain tooling tooth top topic total totally touch tough tour tourist tournament toward towel tower town
toy trace tracing track tracker trade tradition traditional traffic trail train trainee trainer trait tram transaction
transfer transform transformation transit translate translator transpile transport trap travel treadmill treasure
treat treatment tree trend triage trial trick tried trigger trim trip tripod trombone trouble truck true truly trumpet
trust truth try ttl tulip tune turn turtle tutor tutorial twelve twenty twice twin two type typecheck typical
typically typing ugly ui ultimate ultimately umbrella unable unchanged uncle undergraduate understand understood
unfortunately uniform union unique unit unite unittest universe university unknown unless unlike unlikely unsafe
unusual upcoming update upgrade upload upper upset upstream uptime urban urge urgent url urls usage use used useful
user uses using usual usually ux vacation vaccine valid validate valley valuable value van vanilla variable variety
various vary vase vast vault vegan vegetable vegetarian vegetarianism vehicle velocity vendored verb verify version
versus vet veterinarian via victim video view village vintage vinyl violin virtual virtualenv virtually visible vision
visit visitor visual vital vitamin vm vocabulary voice volcano volleyball volume volunteer vote wage wait waiter
waitress wake walk wall wallet walnut want wants war wardrobe warm warn wash waste watch water watercolor watercolour
wave way weak weakness wealth wear weather web webhook website websocket wed wedding week weekday weekend weekly
weight weird welcome well went west western wet whatever wheel wheelchair whenever wherever whether whichever whiskey
whisky white whitelist whitespace whoever whole wide widely widen width wife wild wildlife will willing win wind
window wine wing winner winter wipe wire wise wish without woke woken woman women won wonder wonderful wood woodwork
word wore work workaround worker workflow workout works workshop workspace worktree world worn worry worse worst worth
would wound wrap write writer written wrong wrote yacht yaml yard yeah year yearly yell yellow yesterday yoga yoghurt
yogurt young youth zero zone zucchini
""")
)
_INFLECTIONS = (
    ("ies", ("y", "ie")),
    ("ied", ("y",)),
    ("s", ("",)),
    ("es", ("",)),
    ("ed", ("", "e")),
    ("ing", ("", "e")),
    ("er", ("", "e")),
    ("ly", ("",)),
)
_ENDINGS = listed(
    "ing tion sion ment ness ally ously ively ingly edly able ible ability ised ized ises izes ising izing ship hood "
    "less ful ward wards wise"
)


def is_common(fold: str) -> bool:
    """Whether a word is ordinary enough to be capitalised only for its place."""
    if fold in FUNCTION_WORDS or fold in _COMMON or fold.endswith("n't"):
        return True
    if len(fold) > 6 and fold.endswith(_ENDINGS):
        return True
    return any(base in _COMMON for base in _bases(fold))


def _bases(fold: str) -> Iterator[str]:
    """What the word may be an inflection of."""
    for suffix, endings in _INFLECTIONS:
        if fold.endswith(suffix) and len(fold) - len(suffix) > 1:
            base = fold[: -len(suffix)]
            yield from (base + ending for ending in endings)
            if base[-1] == base[-2] and suffix not in {"s", "es"}:
                yield base[:-1]
