/* A compare-and-swap register over three stores, by CASPaxos. Each member's object is an
 * acceptor (promised ballot, accepted ballot, accepted value, number of the configuration) that is
 * stepped by reading it and writing it back on the condition that it has not changed. A write may
 * land late or never, and its answer may be lost; then the object is read again.
 *
 * A proposer wants to change the value that it last saw to a new one. Values are numbered; parent[v]
 * is the value that v was to replace. With an acceptance it may ask for the promise of its next
 * ballot: then its next round begins with the acceptance.
 *
 * Members lie at places. Each has a marker beside its objects: the number of the configuration that
 * it was made for, the number that it has taken, and whether it is whole. A member may lose all that
 * it had, its marker too. So an object with nothing accepted, or none at all, counts as what it
 * seems only by the marker, read after it. Over nothing only a promise is written.
 *
 * A change of the configuration replaces one member by a new one, at its place or at another. There
 * is one next configuration at most (it is itself a value of a register of the one before), and it
 * may be used at once: its new member votes where a round that has the promises of both others has
 * filled it, and everywhere when it is whole: when both others have taken the number, and then every
 * object of theirs has.
 *
 * Properties
 *   C  once a value is chosen, what is accepted under a larger ballot is it, or descends from it
 *   S  of the values that were to replace one value, at most one is ever reported as written
 *   R  what a round, or a look, reports as the present value descends from all that was reported
 *      before it began
 */
#ifndef MAXB
#define MAXB 3              /* ballots 1..MAXB; a ballot is used by one proposer, once */
#endif
#ifndef MAXN
#define MAXN 2              /* new values 1..MAXN; 0 is the first, which nobody has written */
#endif
#ifndef WIPES
#define WIPES 0             /* members that lose everything */
#endif
#ifndef MAXC
#define MAXC 0              /* changes of the configuration 1..MAXC; 0 is the first */
#endif
#ifndef LATES
#define LATES 0             /* writes whose answer is not seen at once */
#endif
#ifndef RIDES
#define RIDES 0             /* acceptances that ask for the next promise */
#endif
#ifndef LOOKS
#define LOOKS 0             /* reads of a majority that shows the same */
#endif
#ifndef PLACES
#define PLACES 3            /* 4: one more, for a new member */
#endif
#ifndef AIM
#define AIM 0               /* witnesses: what is to be reached */
#endif
#define NP 2
#define NONE 15             /* no marker */
#define MAJ(m) ((m) == 3 || (m) == 5 || (m) == 6 || (m) == 7)
#define BIT(x) (1 << (x))
#define OTHERS(s) (7 - BIT(s))

typedef Acc { bit there; byte prom; byte ab; byte av; byte c };
typedef Marker { byte made; byte num; bit whole };
typedef Late { bit used; bit over; bit same; byte at; byte prom; byte ab; byte av; byte c };
typedef Conf { byte pl[3]; byte made[3] };
typedef Pro {
  byte ph;                  /* 0 idle, 1 prepare, 2 accept, 3 idle with a ballot that is promised */
  byte b; byte saw; byte v; /* ballot; the value it wants to replace; its new value */
  byte nb;                  /* the ballot whose promise rides on the acceptances; 0 none */
  byte got; byte bb; byte bv; byte prop; byte votes;
  byte wh;                  /* whom it knows to be whole */
  byte un;                  /* of whom, when known to be whole, it has then seen its own promise with nothing accepted */
  byte c;                   /* the configuration of its round */
  byte base                 /* what had been reported when its round began */
};
Acc a[PLACES];
Marker mk[PLACES];
Pro p[NP];
Late l[NP];
Conf conf[MAXC+1];
byte nextb = 1, nextv = 1, lates = LATES, wipes = WIPES, rides = RIDES, looks = LOOKS;
byte cur;                   /* the last configuration */
byte new[MAXC+1];           /* who is new in it */
byte slot, took, fenced;    /* of its change: who is replaced; who of the others has the number, and all its objects */
bit has;                   /* and whether they have anything that the new member has to have */
byte parent[MAXN+1];
byte acc[MAXB+1];           /* who has ever accepted under a ballot, by its configuration's slots */
byte val[MAXB+1];
bit written[MAXN+1];        /* reported as written */
byte last;                  /* the last value that was reported, as written or as present */

#define ME p[_pid-1]
#define DESC(x,y) ((x) == (y) || ((x) > 0 && (parent[x] == (y) || (parent[x] > 0 && (parent[parent[x]] == (y) || parent[parent[parent[x]]] == (y))))))

#define PL(s) conf[ME.c].pl[s]
#define O(s) a[PL(s)]
/* an object of this member, of before its time: it counts as none */
#if defined(OLDCOUNTS)
#define MINE(s) (O(s).there)
#else
#define MINE(s) (O(s).there && O(s).c >= conf[ME.c].made[s])
#endif
/* it has accepted: then it has been what it is since the marker was made */
#define SURE(s) (MINE(s) && O(s).ab > 0)
/* by the marker, what is not there was never there */
#if defined(NOWHOLE)
#define WHOLE(s) true
#else
#define WHOLE(s) (mk[PL(s)].whole)
#endif
#if defined(NONUMBER)
#define HERE(s) (mk[PL(s)].made == conf[ME.c].made[s])
#elif defined(NOMARKER)
#define HERE(s) (mk[PL(s)].num <= ME.c)
#else
#define HERE(s) (mk[PL(s)].made == conf[ME.c].made[s] && mk[PL(s)].num <= ME.c)
#endif
#ifdef SEEWIPE
#define NEVER(s) true
#else
#define NEVER(s) (HERE(s) && WHOLE(s))
#endif

/* an acceptance may be written over what is there */
#ifdef NOPROMISE
#define UNDER(s) true
#else
#define UNDER(s) (O(s).prom <= ME.b)
#endif
#if defined(PLAINFILL)
#define MAY(s) (SURE(s) || HERE(s))
#elif defined(FILLFROMONE)
#define MAY(s) (SURE(s) || NEVER(s) || (HERE(s) && (ME.got & OTHERS(s)) != 0))
#elif defined(ANYFILL)
#define MAY(s) (SURE(s) || NEVER(s) || (ME.got & OTHERS(s)) == OTHERS(s))
#else
#define MAY(s) (SURE(s) || NEVER(s) || (HERE(s) && (ME.got & OTHERS(s)) == OTHERS(s)))
#endif

#ifdef WHOLEAFTER
#define WHOLENOW(s) && WHOLE(s)
#else
#define WHOLENOW(s)
#endif

byte i_, j_, s_;
inline chosen() {           /* C, after each acceptance */
  i_ = 1;
  do
  :: i_ <= MAXB ->
     if
     :: MAJ(acc[i_]) ->
        j_ = i_ + 1;
        do
        :: j_ <= MAXB -> assert(acc[j_] == 0 || DESC(val[j_], val[i_])); j_++
        :: else -> break
        od
     :: else
     fi; i_++
  :: else -> break
  od; i_ = 0; j_ = 0
}
/* what is under way over the version before will not land */
inline changed(q) { i_ = 0; do :: i_ < NP -> if :: l[i_].at == q -> l[i_].same = 0 :: else fi; i_++ :: else -> break od; i_ = 0 }
inline store(q, toprom, toab, toav, toc) {
  changed(q); a[q].there = 1; a[q].prom = toprom; a[q].ab = toab; a[q].av = toav; a[q].c = toc
}
inline voted(q, tob, toc) {
  if
  :: tob > 0 ->
     i_ = 0; do :: i_ < 3 -> if :: conf[toc].pl[i_] == q -> acc[tob] = acc[tob] | BIT(i_) :: else fi; i_++ :: else -> break od; i_ = 0;
     chosen()
  :: else
  fi
}
inline clear() { ME.v = 0; ME.got = 0; ME.un = 0; ME.votes = 0; ME.bb = 0; ME.bv = 0; ME.prop = 0; ME.nb = 0 }
inline giveup() { ME.ph = 0; ME.b = 0; clear() }
inline on() {
  ME.saw = ME.prop;
  w = ME.votes;
  if :: ME.nb != 0 -> ME.ph = 3; ME.b = ME.nb :: else -> ME.ph = 0; ME.b = 0; w = 0 fi;
  clear(); ME.got = w; w = 0        /* who has accepted has promised, too */
}
inline reported(x) {
  assert(DESC(x, ME.base));                                           /* R */
  if :: DESC(x, last) -> last = x :: else fi
}
inline done() {
  if
  :: ME.prop == ME.v && ME.v != 0 ->
     s_ = 1;
     do :: s_ <= MAXN -> assert(!(s_ != ME.v && written[s_] && parent[s_] == parent[ME.v])); s_++ :: else -> break od; s_ = 0;   /* S */
     written[ME.v] = 1
  :: else
  fi;
  reported(ME.prop);
  if
  :: AIM == 1 && ME.c == MAXC && ME.v != 0 -> assert(false)     /* written under the last configuration */
  :: AIM == 2 && ME.got != 7 && ME.bb == 0 && ME.bv == 0 && ME.v != 0 && parent[ME.v] != 0 -> assert(false)      /* written by a promise that rode */
  :: AIM == 3 && ME.c == MAXC && (ME.votes & BIT(slot)) && ME.v != 0 -> assert(false)   /* with the vote of the new member */
  :: else
  fi;
  on()
}
inline vote(x) {
  ME.votes = ME.votes | BIT(x);
  if
  :: MAJ(ME.votes) -> done()
#ifdef MINORITY
  :: !MAJ(ME.votes) -> done()
#elif defined(RIDEALONE)
  :: !MAJ(ME.votes) && ME.nb != 0 -> on()
#endif
  :: else
  fi
}
inline promise(x) {
  ME.got = ME.got | BIT(x);
  if :: SURE(x) && O(x).ab > ME.bb -> ME.bb = O(x).ab; ME.bv = O(x).av :: else fi
}
inline member() { x = 0; do :: x < 2 -> x++ :: break od }
inline late(q, toprom, toab, toav) {
  lates--; l[_pid-1].used = 1; l[_pid-1].at = q; l[_pid-1].over = a[q].there; l[_pid-1].same = 1; l[_pid-1].c = ME.c;
  l[_pid-1].prom = toprom; l[_pid-1].ab = toab; l[_pid-1].av = toav
}
/* a promise is written, over what is there */
inline unsure(x) {
  if
#ifdef WHOLEAFTER
  :: true -> ME.un = ME.un | BIT(x)
#else
  :: ME.wh & BIT(x) -> ME.un = ME.un | BIT(x)
#endif
  :: else
  fi
}
inline ask(x) {
  if
  :: SURE(x) ->
     if
     :: promise(x); store(PL(x), ME.b, O(x).ab, O(x).av, ME.c)
     :: lates > 0 && !l[_pid-1].used -> late(PL(x), ME.b, O(x).ab, O(x).av)
     fi
  :: !SURE(x) ->
     if
     :: store(PL(x), ME.b, 0, 0, ME.c); if :: ME.ph == 1 -> unsure(x) :: else fi
     :: lates > 0 && !l[_pid-1].used -> late(PL(x), ME.b, 0, 0)
     fi
  fi
}
proctype pro() {
  byte x, w;
  do
  /* a round begins: with a new value, or only to read; under a configuration that it knows of */
  :: atomic { ME.ph == 0 && nextb <= MAXB ->
       ME.ph = 1; ME.b = nextb; ME.base = last;
       do :: ME.c < cur -> ME.c++; ME.wh = ME.wh & OTHERS(new[ME.c]) :: break od;
#ifdef SAMEBALLOT
       if :: nextb++ :: skip fi;
#else
       nextb++;
#endif
       if :: nextv <= MAXN -> ME.v = nextv; parent[nextv] = ME.saw; nextv++ :: skip fi }
  /* or goes on with the ballot that was promised with the last acceptance */
  :: atomic { ME.ph == 3 && nextv <= MAXN ->
       ME.ph = 2; ME.base = last; ME.v = nextv; parent[nextv] = ME.saw; nextv++; ME.prop = ME.v; val[ME.b] = ME.prop }
  /* prepare at one member */
  :: atomic { ME.ph == 1 -> member();
       if
       :: O(x).there && O(x).c > ME.c -> giveup()
       :: MINE(x) && O(x).c <= ME.c && O(x).prom > ME.b -> giveup()
       :: MINE(x) && O(x).c == ME.c && O(x).prom == ME.b && !(ME.got & BIT(x)) -> if :: SURE(x) -> promise(x) :: else -> unsure(x) fi   /* read back */
       :: (!MINE(x) && (!O(x).there || O(x).c <= ME.c)) || (MINE(x) && O(x).c <= ME.c && O(x).prom < ME.b) -> ask(x)
       :: else
       fi; x = 0 }
  /* the marker is read: with nothing accepted, the promise counts if the member was whole before, and is there */
  :: atomic { ME.ph == 1 && ((ME.un & (7 - ME.got)) != 0 || ME.wh != 7) -> member();
       if
#ifdef SEEWIPE
       :: true ->
#else
       :: HERE(x) ->
#endif
          if :: (ME.un & BIT(x)) WHOLENOW(x) -> ME.got = ME.got | BIT(x) :: else fi;
          if :: WHOLE(x) -> ME.wh = ME.wh | BIT(x) :: else fi
       :: else
       fi; x = 0 }
  /* a majority has promised: go on from the value accepted last */
  :: atomic { ME.ph == 1 && MAJ(ME.got) ->
#ifdef NOADOPT
       ME.prop = (ME.v != 0 -> ME.v : ME.bv);
#else
       ME.prop = ((ME.v != 0 && ME.bv == ME.saw) -> ME.v : ME.bv);
#endif
       if
       :: ME.prop == 0 -> reported(0); giveup()                                  /* nothing was ever written */
       :: else ->
          if :: rides > 0 && nextb <= MAXB -> rides--; ME.nb = nextb; nextb++ :: skip fi;
          val[ME.b] = ME.prop; ME.ph = 2
       fi }
  /* accept at one member */
  :: atomic { ME.ph == 2 -> member();
       if
       :: O(x).there && O(x).c > ME.c -> giveup()
       :: MINE(x) && O(x).ab == ME.b && !(ME.votes & BIT(x)) -> vote(x)          /* read back */
#ifndef NOPROMISE
       :: MINE(x) && O(x).c <= ME.c && O(x).ab != ME.b && O(x).prom > ME.b -> giveup()    /* unknown: it may surface */
#endif
       :: O(x).c <= ME.c && (!O(x).there || !MINE(x)) ->
#ifdef CREATEACCEPT
          if
          :: store(PL(x), ME.b, ME.b, ME.prop, ME.c); voted(PL(x), ME.b, ME.c); if :: NEVER(x) -> vote(x) :: else fi
          :: lates > 0 && !l[_pid-1].used -> late(PL(x), ME.b, ME.b, ME.prop)
          fi
#else
          ask(x)
#endif
       :: MINE(x) && O(x).c <= ME.c && O(x).ab != ME.b && UNDER(x) && MAY(x) ->
          w = ME.b;
#ifndef RIDENONE
          if :: ME.nb != 0 -> w = ME.nb :: else fi;
#endif
          if
          :: store(PL(x), w, ME.b, ME.prop, ME.c); voted(PL(x), ME.b, ME.c); w = 0; vote(x)
          :: lates > 0 && !l[_pid-1].used -> late(PL(x), w, ME.b, ME.prop); w = 0
          fi
       :: else
       fi; x = 0 }
  /* the caller gives up, or crashes */
  :: atomic { ME.ph != 0 -> giveup() }
  od
}

proctype net() {
  byte x;
  do
  :: atomic { x = 0; do :: x < NP - 1 -> x++ :: break od;
       if
       :: l[x].used ->
          if
#ifdef UNCOND
          :: store(l[x].at, l[x].prom, l[x].ab, l[x].av, l[x].c); voted(l[x].at, l[x].ab, l[x].c)
#else
          :: (l[x].over && l[x].same) || (!l[x].over && !a[l[x].at].there) ->
             store(l[x].at, l[x].prom, l[x].ab, l[x].av, l[x].c); voted(l[x].at, l[x].ab, l[x].c)
#endif
          :: true
          fi; l[x].used = 0; l[x].over = 0; l[x].same = 0; l[x].at = 0; l[x].prom = 0; l[x].ab = 0; l[x].av = 0; l[x].c = 0
       :: else
       fi; x = 0 }
  /* a member loses all that it had */
  :: atomic { wipes > 0 -> wipes--; x = 0; do :: x < PLACES - 1 -> x++ :: break od;
       changed(x);
       a[x].there = 0; a[x].prom = 0; a[x].ab = 0; a[x].av = 0; a[x].c = 0;
       mk[x].made = NONE; mk[x].num = 0; mk[x].whole = 0; x = 0 }
  od
}

#if LOOKS > 0
/* a look: a majority shows the same accepted ballot */
proctype look() {
  byte x, c, ab, av, n, base, wh = 7, un;
end:
  do
  :: atomic { looks > 0 -> looks--; base = last; do :: c < cur -> c++; wh = wh & OTHERS(new[c]) :: break od; ab = 0; n = 0; un = 0 }
  :: atomic { base != 255 && n != 7 -> x = 0; do :: x < 2 -> x++ :: break od;
       if
       :: !(n & BIT(x)) && a[conf[c].pl[x]].there && a[conf[c].pl[x]].c >= conf[c].made[x] && a[conf[c].pl[x]].c <= c && a[conf[c].pl[x]].ab > 0 ->
          if
          :: n == 0 -> ab = a[conf[c].pl[x]].ab; av = a[conf[c].pl[x]].av; n = BIT(x)
          :: n != 0 && ab == a[conf[c].pl[x]].ab -> n = n | BIT(x)
          :: else
          fi
       /* one with nothing accepted, by a member that is known to be whole; its marker is read after it */
       :: (!a[conf[c].pl[x]].there || a[conf[c].pl[x]].c < conf[c].made[x] || a[conf[c].pl[x]].ab == 0) && (wh & BIT(x)) -> un = un | BIT(x)
       :: mk[conf[c].pl[x]].made == conf[c].made[x] && mk[conf[c].pl[x]].num <= c && mk[conf[c].pl[x]].whole ->
          wh = wh | BIT(x);
          if :: (un & BIT(x)) && ab == 0 -> n = n | BIT(x) :: else fi
       :: else
       fi;
       if
       :: MAJ(n) -> assert(DESC(av, base)); if :: DESC(av, last) -> last = av :: else fi; n = 0; ab = 0; av = 0; base = last; c = 0; un = 0; break
       :: else
       fi; x = 0 }
  od
}
#endif

#if MAXC > 0
/* who changes the configuration; any step may be the next, or none */
proctype admin() {
  byte x, n;
  do
  /* the next one: a new member, whose marker is there before it is known */
  :: atomic { cur < MAXC -> n = cur; x = 0; do :: x < 2 -> x++ :: break od;
       if
#ifdef NOWAIT
       :: true ->
#else
       /* one at a time: the others are whole */
       :: mk[conf[n].pl[(x+1)%3]].whole && mk[conf[n].pl[(x+1)%3]].made == conf[n].made[(x+1)%3] &&
          mk[conf[n].pl[(x+2)%3]].whole && mk[conf[n].pl[(x+2)%3]].made == conf[n].made[(x+2)%3] ->
#endif
          n++; slot = x; took = 0; fenced = 0; has = 0;
          x = 0; do :: x < 3 -> conf[n].pl[x] = conf[n-1].pl[x]; conf[n].made[x] = conf[n-1].made[x]; x++ :: else -> break od;
#if PLACES > 3
          if
          :: skip
          :: conf[n-1].pl[0] != 3 && conf[n-1].pl[1] != 3 && conf[n-1].pl[2] != 3 -> conf[n].pl[slot] = 3
          fi;
#endif
          conf[n].made[slot] = n; cur = n; new[n] = slot;
          x = conf[n].pl[slot]; mk[x].made = n; mk[x].num = n; mk[x].whole = 0
       :: else
       fi; n = 0; x = 0 }
  /* another member takes the number */
  :: atomic { cur > 0 && took != OTHERS(slot) -> x = 0; do :: x < 2 -> x++ :: break od; n = conf[cur].pl[x];
       if
       :: x != slot && !(took & BIT(x)) && mk[n].made == conf[cur].made[x] -> mk[n].num = cur; took = took | BIT(x)
       :: else
       fi; n = 0; x = 0 }
  /* then its object takes it, where there is one */
#ifdef FENCEEARLY
  :: atomic { cur > 0 && fenced != OTHERS(slot) ->
#else
  :: atomic { cur > 0 && took == OTHERS(slot) && fenced != OTHERS(slot) ->
#endif
       x = 0; do :: x < 2 -> x++ :: break od; n = conf[cur].pl[x];
       if
       #ifdef FENCELOST
       :: x != slot && !(fenced & BIT(x)) ->
#else
       :: x != slot && !(fenced & BIT(x)) && ((a[n].there && a[n].c >= conf[cur].made[x] && a[n].ab > 0) || (mk[n].made == conf[cur].made[x] && mk[n].whole)) ->
#endif
          if :: a[n].there && a[n].ab > 0 -> has = 1 :: else fi;
#ifndef NOFENCE
          if :: a[n].there && a[n].c < cur -> store(n, a[n].prom, a[n].ab, a[n].av, cur) :: else fi;
#endif
          fenced = fenced | BIT(x)
       :: else
       fi; n = 0; x = 0 }
  /* the new member is whole */
  :: atomic { cur > 0 && fenced == OTHERS(slot) -> n = conf[cur].pl[slot];
       if
#ifdef UNFILLED
       :: mk[n].made == cur && !mk[n].whole ->
#else
       :: mk[n].made == cur && !mk[n].whole && (!has || (a[n].there && a[n].c >= cur && a[n].ab > 0)) ->
#endif
          mk[n].whole = 1
       :: else
       fi; n = 0 }
  od
}
#endif
init { atomic { 
  i_ = 0; do :: i_ < 3 -> conf[0].pl[i_] = i_; mk[i_].whole = 1; i_++ :: else -> break od; i_ = 0;
#if PLACES > 3
  mk[3].made = NONE;
#endif
  p[0].wh = 7; p[1].wh = 7;
  run pro(); run pro(); run net();
#if LOOKS > 0
  run look();
#endif
#if MAXC > 0
  run admin()
#endif
} }
