"""Words too common to tell one memory from another, by language; a language without a list has none.

Kept out of the lists on purpose: words of time, order and amount (before, after, more, other, own, now). In
questions put to an agent's memory they carry meaning; leaving them in raised recall at 5, 10 and 20.
"""

_LISTS = {
    "english": """
        a an the and or but nor if because as until while than so
        of at by for with about against between into through during to from up down in out on off over under
        i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers
        herself it its itself they them their theirs themselves this that these those there then once further
        what which who whom when where why how am is are was were be been being have has had having
        do does did doing will would can could shall should may might must just not no very too such some
        s t d m ll re ve don doesn didn isn aren wasn weren ain hasn haven hadn won wouldn can couldn shan shouldn
        mustn mightn needn ma o y
    """,
    "german": """
        der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner keines
        und oder aber denn sondern als wie wenn weil dass ob damit sowie
        in im ins an am ans auf aus bei beim mit von vom zu zum zur für um über unter durch gegen nach seit bis
        ich du er sie es wir ihr mich dich sich uns euch mir dir ihm ihn ihnen mein meine meinen meinem meiner dein
        deine deinen deinem deiner sein seine seinen seinem seiner ihre ihren ihrem ihrer unser unsere euer eure
        dies diese dieser dieses diesem diesen jene jener jenes welche welcher welches was wer wen wem wessen wo
        wohin woher wann warum wieso bin bist ist sind seid war waren warst gewesen werden wird wurde wurden worden
        habe hast hat haben hatte hatten kann können konnte muss müssen soll sollen will wollen würde würden
        nicht auch nur noch schon sehr so da dann doch man
    """,
    "french": """
        le la les l un une des du de d et ou mais donc or ni car que qu si comme quand lorsque
        à au aux en dans par pour sur sous avec sans chez entre vers
        je j tu il elle on nous vous ils elles me m te t se s lui leur y moi toi soi eux
        mon ma mes ton ta tes son sa ses notre nos votre vos leurs ce c cet cette ces ça cela
        qui quoi dont où quel quelle quels quelles pourquoi comment
        suis es est sommes êtes sont étais était étaient être été ai as a avons avez ont avait avaient avoir eu
        fait faire ne n pas plus très
    """,
    "spanish": """
        el la los las lo un una unos unas y e o u pero ni que si como cuando porque
        de del a al en por para con sin sobre entre hasta desde
        yo tú él ella ello nosotros vosotros ellos ellas me te se nos os le les mi mis tu tus su sus
        nuestro nuestra nuestros nuestras este esta esto estos estas ese esa eso esos esas aquel aquella
        qué quién quiénes cuál cuáles cuándo dónde cómo quien cual donde
        soy eres es somos son era eran fue fueron ser sido estoy está están estaba estaban estar
        he has ha hemos han había habían haber no sí muy ya también
    """,
    "italian": """
        il lo la i gli le l un uno una e ed o ma né che se come quando perché
        di del dello della dei degli delle d a al allo alla ai agli alle da dal dallo dalla dai dagli dalle
        in nel nello nella nei negli nelle su sul sullo sulla sui sugli sulle con per tra fra
        io tu lui lei noi voi loro mi ti si ci vi ne mio mia miei mie tuo tua tuoi tue suo sua suoi sue
        nostro nostra nostri nostre vostro vostra questo questa questi queste quello quella quelli quelle
        chi cui quale quali dove sono sei è siamo siete era erano essere stato stata ho hai ha abbiamo hanno
        aveva avevano avere non molto anche
    """,
    "portuguese": """
        o a os as um uma uns umas e ou mas nem que se como quando porque
        de do da dos das em no na nos nas por pelo pela pelos pelas para com sem sobre entre até ao à aos às
        eu tu ele ela nós vós eles elas você vocês me te lhe lhes meu minha meus minhas teu tua seu sua seus suas
        nosso nossa este esta isto estes estas esse essa isso esses essas aquele aquela aquilo
        quem qual quais onde sou és é somos são era eram foi foram ser sido estou está estão estava estavam estar
        tenho tem têm tinha tinham ter há não muito também já
    """,
    "dutch": """
        de het een en of maar want dat als dan toen omdat
        van in op aan te bij met voor door naar om uit tot over onder tegen
        ik jij je u hij zij ze wij we jullie hem haar hen hun mij me ons mijn jouw uw zijn onze
        dit deze die wat wie welke waar wanneer waarom hoe er
        ben bent is was waren geweest worden wordt werd heb hebt heeft hebben had hadden
        kan kunnen zal zullen zou moet niet geen ook zo nog wel zeer
    """,
    "swedish": """
        en ett den det de och eller men att om som när där eftersom
        i på av till från med för vid under över mellan genom hos
        jag du han hon vi ni mig dig honom henne oss er dem sig min mitt mina din ditt dina sin sitt sina hans hennes
        vår vårt våra deras denna detta dessa vad vem vilken vilket vilka var varför hur
        är var varit vara blir blev har hade ha kan ska skulle inte ej också så
    """,
    "danish": """
        en et den det de og eller men at om som når hvor fordi
        i på af til fra med for ved under over mellem gennem hos
        jeg du han hun vi mig dig ham hende os jer dem sig min mit mine din dit dine sin sit sine hans hendes
        vores deres denne dette disse hvad hvem hvilken hvilket hvilke hvornår hvorfor hvordan
        er var været være bliver blev har havde have kan skal skulle ikke også så der
    """,
    "norwegian": """
        en et ei den det de og eller men at om som når hvor fordi
        i på av til fra med for ved under over mellom gjennom hos
        jeg du han hun vi meg deg ham henne oss dere dem seg min mitt mine din ditt dine sin sitt sine hans hennes
        vår vårt våre deres denne dette disse hva hvem hvilken hvilket hvilke hvorfor hvordan
        er var vært være blir ble har hadde ha kan skal skulle ikke også så der
    """,
    "russian": """
        и или но а что чтобы если как когда где потому в во на с со к ко по из от до у за о об для при через над под
        я ты он она оно мы вы они меня тебя его её ее нас вас их мне тебе ему ей нам вам им себя
        мой моя мое мои твой твоя свой своя свои наш ваш этот эта это эти тот та то те кто какой какая какие
        почему есть был была было были быть не ни же ли бы уже очень так
    """,
}


def stop_words(language: str) -> frozenset[str]:
    return frozenset(_LISTS.get(language, "").casefold().split())
