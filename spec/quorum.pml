/* A compare-and-swap register over three stores, by CASPaxos. Each member's object is an
 * acceptor (promised ballot, accepted ballot, accepted value, number of the configuration) that is
 * stepped by reading it and writing it back on the condition that it has not changed. A write may
 * land late or never, and its answer may be lost; then the object is read again.
 *
 * Values are numbered; parent[v] is the value that v replaces. A proposer that has a majority of
 * promises proposes a value over the one that it finds, or that one again. With an acceptance it may
 * ask for the promise of its next ballot: then its next round begins with the acceptance. It may give
 * up anywhere, and begin anew, under any configuration that there has been.
 *
 * Members lie at places. Each has a marker beside its objects: the number of the configuration that
 * it was made for, the number that it has taken, and whether it is whole. A member may lose all that
 * it had, its marker too. So an object with nothing accepted, or none at all, counts as what it
 * seems only by the marker, read after it, of a member that was known to be whole before it. Here the
 * object and the marker are read in one step: a marker that says so later says so now. Over
 * nothing only a promise is written.
 *
 * A change of the configuration replaces one member by a new one, at its place or at another. There
 * is one next configuration at most (it is itself a value of a register of the one before), and it
 * may be used at once: its new member votes where a round that has the promises of both others has
 * filled it, and everywhere when it is whole: when both others have taken the number, and then every
 * object of theirs has.
 *
 * With COLLECT a change replaces nobody: it is for what the deletion TOMB, which is a value like any
 * other, has left. When all members have taken the number, each is read, in a step of its own. If each
 * has accepted TOMB under one ballot and an earlier configuration, or has no object at all, the object of
 * each is deleted, some time, if it has not changed since. The ballots of a configuration are above those
 * of the ones before. Who finds nothing after that has found TOMB.
 *
 * Properties
 *   C  once a value is chosen, what is accepted under a larger ballot is it, or descends from it;
 *      of an older configuration, what is chosen
 *   S  of the values that were to replace one value, at most one is ever reported as written
 *   R  what a round, or a look, reports as the present value descends from all that was reported
 *      before it began
 *
 * Left out by symmetry: the first ballot is the first proposer's, slot 2 is changed first, and what
 * then first tells members 0 and 1 apart happens to member 0: it is emptied, takes the number, or
 * is changed.
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
#define LATES 0             /* writes whose answer is not seen at once; a proposer has one on the way */
#endif
#ifndef RIDES
#define RIDES 0             /* acceptances that ask for the next promise */
#endif
#ifndef LOOKS
#define LOOKS 0             /* reads of a majority that shows the same */
#endif
#ifndef RIVALS
#define RIVALS 0            /* changes that come second, and have written a marker */
#endif
#ifndef PLACES
#define PLACES 3            /* 4: one more, for a new member */
#endif
#ifndef TOMB
#define TOMB 2              /* with COLLECT: the value that is a deletion */
#endif
#ifndef WITNESS
#define WITNESS 0           /* what is to be reached */
#endif
#ifdef INITBACK
#define FIRST 2             /* the first ballot */
#else
#define FIRST 1
#endif
#define NP 2
#define NONE 15             /* no marker */
#define RIVAL 14            /* the marker of a change that came second */
#define MAJ(m) ((m) == 3 || (m) == 5 || (m) == 6 || (m) == 7)
#define BIT(x) (1 << (x))
#define OTHERS(s) (7 - BIT(s))

typedef Acc { bit there; byte prom; byte ab; byte av; byte c };
typedef Marker { byte made; byte num; bit whole };
typedef Late { bit used; bit over; byte s; byte prom; byte ab; byte av; byte c };
typedef Conf { byte pl[3]; byte made[3] };
typedef Pro {
  byte ph;                  /* 0 idle, 1 prepare, 2 accept, 3 idle with a ballot that is promised */
  byte b;                   /* its ballot */
  byte nb;                  /* the ballot whose promise rides on the acceptances; 0 none */
  byte got; byte bb; byte bv; byte votes;   /* bv: the value accepted last, then what it proposes */
  bit own;                  /* and that is its own */
  byte c;                   /* the configuration of its round */
  byte base                 /* what had been reported when its round began */
#ifdef COLLECT
  ; bit gr                  /* it has found nothing where TOMB had been */
#endif
};
Acc a[PLACES];
Marker mk[PLACES];
Pro p[NP];
Late l[NP];
Conf conf[MAXC+1];
byte nextb = 1, nextv = 1, lates = LATES, wipes = WIPES, rides = RIDES, looks = LOOKS, rivals = RIVALS;
byte cur;                   /* the last configuration */
byte slot, took, fenced;    /* of its change: who is replaced; who of the others has the number, and all its objects */
bit has;                    /* and whether they have anything that the new member has to have */
byte parent[MAXN+1];
byte acc[MAXB+1];           /* who has ever accepted under a ballot, by its configuration's slots */
byte val[MAXB+1];
#if MAXC > 0
byte under[MAXB+1];         /* the configuration of a ballot's round */
#endif
bit written[MAXN+1];        /* reported as written */
byte last;                  /* the last value that was reported, as written or as present */
#if defined(WHOLEAFTER) || defined(APART)
byte un[NP];                /* who was seen with nothing accepted; the marker is read in a step of its own */
#endif
#ifdef COLLECT
byte seen;                  /* by the collection: who has TOMB, or nothing; 8: and it was done */
byte flag, sent;            /* whose object is to be deleted; and the request is on its way */
byte kb;                    /* the ballot that TOMB was accepted under */
bit grave;                  /* it has been deleted somewhere */
#if !defined(NORANGE)
#ifndef B0
#define B0 (MAXB / (MAXC + 1))
#endif
#define BASE(c) ((c) == 0 -> 0 : B0 + ((c) - 1) * ((MAXB - B0) / MAXC))   /* the ballots below those of a configuration */
byte nb[MAXC+1];            /* how many of each configuration are used */
#endif
#endif
#if WITNESS == 2
bit rode[NP];
#elif WITNESS == 7
bit gone;
#endif

#define ME p[_pid-1]
#define DESC(x,y) ((x) == (y) || ((x) > 0 && (parent[x] == (y) || (parent[x] > 0 && (parent[parent[x]] == (y) || parent[parent[parent[x]]] == (y))))))

#define PL(s) conf[ME.c].pl[s]
#define O(s) a[PL(s)]
/* an object of this member, not of before its time: that counts as none */
#if defined(OLDCOUNTS)
#define MINE(s) (O(s).there)
#else
#define MINE(s) (O(s).there && O(s).c >= conf[ME.c].made[s])
#endif
/* it has accepted: then it has been what it is since the marker was made */
#define SURE(s) (MINE(s) && O(s).ab > 0)
#if defined(NOWHOLE)
#define WHOLE(s) true
#elif defined(NOMARKER) || defined(NONAME)
#define WHOLE(s) (mk[PL(s)].whole || conf[ME.c].made[s] == 0)     /* it was, once */
#else
#define WHOLE(s) (mk[PL(s)].whole)
#endif
/* the marker is the member's, and it has not taken a larger number */
#if defined(NONUMBER)
#define HERE(s) (mk[PL(s)].made == conf[ME.c].made[s])
#elif defined(NOMARKER)
#define HERE(s) (mk[PL(s)].num <= ME.c)
#elif defined(NONAME)
#define HERE(s) (mk[PL(s)].made != NONE && mk[PL(s)].num <= ME.c)
#else
#define HERE(s) (mk[PL(s)].made == conf[ME.c].made[s] && mk[PL(s)].num <= ME.c)
#endif
/* by the marker, what is not there was never there */
#ifdef SEEWIPE
#define NEVER(s) true
#else
#define NEVER(s) (HERE(s) && WHOLE(s))
#endif

/* nothing has told members 0 and 1 apart */
#define ALIKE (WIPES == 0 && cur <= 1 && took == 0 && rivals == RIVALS)

#ifdef APART
#define STILL(s) HERE(s)
#else
#define STILL(s) NEVER(s)
#endif

/* an acceptance may be written over what is there */
#ifdef NOPROMISE
#define UNDER(s) true
#else
#define UNDER(s) (O(s).prom <= ME.b)
#endif
#if defined(PLAINFILL)
#define MAY(s) (SURE(s) || HERE(s))
#elif defined(ANYFILL)
#define MAY(s) (SURE(s) || NEVER(s) || (ME.got & OTHERS(s)) == OTHERS(s))
#else
#define MAY(s) (SURE(s) || NEVER(s) || (HERE(s) && (ME.got & OTHERS(s)) == OTHERS(s)))
#endif

#if MAXC > 0
#define BEFORE(j, i) (under[j] < under[i] && !MAJ(acc[j]))
#else
#define BEFORE(j, i) false
#endif
byte i_, j_;
inline chosen() {           /* C, after each acceptance */
  i_ = 1;
  do
  :: i_ <= MAXB ->
     if
     :: MAJ(acc[i_]) ->
        j_ = i_ + 1;
        do
        :: j_ <= MAXB -> assert(acc[j_] == 0 || BEFORE(j_, i_) || DESC(val[j_], val[i_])); j_++
        :: else -> break
        od
     :: else
     fi; i_++
  :: else -> break
  od; i_ = 0; j_ = 0
}
/* an object that is there may be gone again, and then what is to be written over none lands */
#ifdef COLLECT
#define AGAIN true
#else
#define AGAIN (wipes > 0)
#endif
inline drop(i) { l[i].used = 0; l[i].over = 0; l[i].s = 0; l[i].prom = 0; l[i].ab = 0; l[i].av = 0; l[i].c = 0 }
/* what is under way over the version before will not land */
inline changed(q, again) {
  i_ = 0
#ifdef COLLECT
  ; flag = flag & (7 - BIT(q))
#ifndef UNCONDDROP
  ; sent = sent & (7 - BIT(q))
#endif
#endif
#ifndef UNCOND
  ;
  do
  :: i_ < NP -> if :: l[i_].used && conf[l[i_].c].pl[l[i_].s] == q && (l[i_].over || !(again)) -> drop(i_) :: else fi; i_++
  :: else -> break
  od; i_ = 0
#endif
}
inline store(q, toprom, toab, toav, toc) {
  changed(q, AGAIN); a[q].there = 1; a[q].prom = toprom; a[q].ab = toab; a[q].av = toav; a[q].c = toc
}
inline clear() {
  ME.ph = 0; ME.b = 0; ME.nb = 0; ME.got = 0; ME.bb = 0; ME.bv = 0; ME.votes = 0; ME.own = 0; ME.base = 0; ME.c = 0
#ifdef COLLECT
  ; ME.gr = 0
#endif
#if defined(WHOLEAFTER) || defined(APART)
  ; un[_pid-1] = 0
#endif
}
inline on() {
  if
  :: ME.nb != 0 -> ME.ph = 3; ME.b = ME.nb; ME.nb = 0; ME.got = ME.votes; ME.votes = 0; ME.own = 0; ME.base = 0   /* who has accepted has promised, too */
  :: else -> clear()
  fi
}
inline reported(x) {
  assert(DESC(x, ME.base));                                           /* R */
  if :: DESC(x, last) -> last = x :: else fi
}
inline done() {
  if
  :: ME.own ->
     i_ = 1;
     do :: i_ <= MAXN -> assert(!(i_ != ME.bv && written[i_] && parent[i_] == parent[ME.bv])); i_++ :: else -> break od; i_ = 0;   /* S */
     written[ME.bv] = 1;
#if WITNESS == 10
     assert(!grave || ME.bv < TOMB);                                    /* written where a deletion was collected */
#endif
#if WITNESS == 1
     assert(ME.c != MAXC);                                              /* written under the last configuration */
#elif WITNESS == 2
     assert(!rode[_pid-1]);                                             /* written under a promise that rode */
#elif WITNESS == 3
     assert(ME.c == 0 || ME.c != cur || !(ME.votes & BIT(slot)) || mk[PL(slot)].whole);   /* with the vote of a new member that a round has filled */
#elif WITNESS == 4
     assert(parent[ME.bv] == 0 || wipes > 0);                           /* over another value, and a member has lost everything */
#endif
  :: else
  fi;
  reported(ME.bv);
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
/* its promise was seen at a member that has accepted nothing */
inline nothing(x) {
#if defined(WHOLEAFTER)
  un[_pid-1] = un[_pid-1] | BIT(x)
#elif defined(APART)
  if :: mk[PL(x)].made == conf[ME.c].made[x] && WHOLE(x) -> un[_pid-1] = un[_pid-1] | BIT(x) :: else fi
#else
  if :: NEVER(x) -> ME.got = ME.got | BIT(x)
#ifdef COLLECT
     ; if :: grave -> ME.gr = 1 :: else fi
#endif
  :: else fi
#endif
}
inline late(x, toprom, toab, toav) {
  lates--; l[_pid-1].used = 1; l[_pid-1].s = x; l[_pid-1].over = O(x).there; l[_pid-1].c = ME.c;
  l[_pid-1].prom = toprom; l[_pid-1].ab = toab; l[_pid-1].av = toav
}
/* a promise is written, over what is there */
inline ask(x) {
  if
  :: SURE(x) ->
     if
     :: promise(x); store(PL(x), ME.b, O(x).ab, O(x).av, ME.c)
     :: lates > 0 && !l[_pid-1].used -> late(x, ME.b, O(x).ab, O(x).av)
     fi
  :: !SURE(x) ->
     if
     :: store(PL(x), ME.b, 0, 0, ME.c); if :: ME.ph == 1 -> nothing(x) :: else fi
     :: lates > 0 && !l[_pid-1].used -> late(x, ME.b, 0, 0)
     fi
  fi
}
proctype pro() {
  byte x, w;
end:
  do
  /* a round begins, under a configuration that it knows of; what was before is given up */
#if defined(COLLECT) && !defined(NORANGE)
  :: atomic { nb[0] > 0 || _pid == 1 ->
       clear();
#ifndef NONUMBERS
       do :: ME.c < cur -> ME.c++ :: break od;
#endif
       if
       :: BASE(ME.c) + nb[ME.c] < BASE(ME.c + 1) -> nb[ME.c]++; ME.ph = 1; ME.b = BASE(ME.c) + nb[ME.c]; ME.base = last; under[ME.b] = ME.c
       :: else -> ME.c = 0
       fi }
#else
  :: atomic { nextb <= MAXB && (nextb > FIRST || _pid == 1) ->
       clear();
       ME.ph = 1; ME.b = nextb; ME.base = last;
       do :: ME.c < cur -> ME.c++ :: break od;
#if MAXC > 0
       under[nextb] = ME.c;
#endif
#ifdef SAMEBALLOT
       if :: nextb++ :: skip fi
#else
       nextb++
#endif
     }
#endif
  /* or goes on with the ballot that was promised with the last acceptance */
  :: atomic { ME.ph == 3 && nextv <= MAXN ->
#if WITNESS == 2
       rode[_pid-1] = 1;
#endif
       ME.ph = 2; ME.base = last; parent[nextv] = ME.bv; ME.bv = nextv; ME.own = 1; nextv++; val[ME.b] = ME.bv }
  /* prepare at one member */
  :: atomic { ME.ph == 1 && ME.got != 7 ->
       if :: !(ME.got & 1) -> x = 0 :: !(ME.got & 2) -> x = 1 :: !(ME.got & 4) -> x = 2 fi;
       if
       :: O(x).there && (O(x).c > ME.c || MINE(x) && O(x).prom > ME.b)                                 /* refused */
       :: MINE(x) && O(x).c == ME.c && O(x).prom == ME.b -> if :: SURE(x) -> promise(x) :: else -> nothing(x) fi    /* read back */
       :: !O(x).there || O(x).c <= ME.c && (!MINE(x) || O(x).prom < ME.b) -> ask(x)
       :: else
       fi; x = 0 }
#if defined(WHOLEAFTER) || defined(APART)
  :: atomic { ME.ph == 1 && un[_pid-1] != 0 ->
       do :: x < 2 -> x++ :: break od;
       if :: (un[_pid-1] & BIT(x)) && STILL(x) -> ME.got = ME.got | BIT(x) :: else fi; x = 0 }
#endif
  /* a majority has promised: go on from the value accepted last */
  :: atomic { ME.ph == 1 && MAJ(ME.got) ->
#ifdef COLLECT
       if :: ME.bv == 0 && ME.gr -> ME.bv = TOMB :: else fi; ME.gr = 0;
#endif
       if
       :: nextv <= MAXN -> parent[nextv] = ME.bv; ME.bv = nextv; ME.own = 1; nextv++
#ifdef NOADOPT
          ; parent[ME.bv] = 0
#endif
       :: true
       fi;
       if
#ifdef COLLECT
       :: ME.bb == 0 && !ME.own -> reported(ME.bv); clear()                      /* nothing is there */
#else
       :: ME.bv == 0 -> reported(0); clear()                                     /* nothing was ever written */
#endif
       :: else ->
          if :: rides > 0 && nextb <= MAXB -> rides--; ME.nb = nextb;
#if MAXC > 0
             under[nextb] = ME.c;
#endif
             nextb++
          :: true
          fi;
          val[ME.b] = ME.bv; ME.ph = 2; ME.bb = 0
#if defined(WHOLEAFTER) || defined(APART)
          ; un[_pid-1] = 0
#endif
       fi }
  /* accept at one member */
  :: atomic { ME.ph == 2 ->
       if :: !(ME.votes & 1) -> x = 0 :: !(ME.votes & 2) -> x = 1 :: !(ME.votes & 4) -> x = 2 fi;
       if
       :: O(x).there && O(x).c > ME.c
       :: MINE(x) && O(x).c <= ME.c && O(x).ab == ME.b -> vote(x)                /* read back */
       :: O(x).c <= ME.c && !MINE(x) ->
#ifdef CREATEACCEPT
          if
          :: store(PL(x), ME.b, ME.b, ME.bv, ME.c); acc[ME.b] = acc[ME.b] | BIT(x); chosen(); if :: NEVER(x) -> vote(x) :: else fi
          :: lates > 0 && !l[_pid-1].used -> late(x, ME.b, ME.b, ME.bv)
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
          :: store(PL(x), w, ME.b, ME.bv, ME.c); acc[ME.b] = acc[ME.b] | BIT(x); chosen(); w = 0; vote(x)
          :: lates > 0 && !l[_pid-1].used -> late(x, w, ME.b, ME.bv); w = 0
          fi
       :: else
       fi; x = 0 }
  od
}

#define AT(i) a[conf[l[i].c].pl[l[i].s]]
proctype net() {
  byte x, w;
end:
  do
  /* a late write lands */
  :: atomic { l[0].used || l[1].used ->
       if :: l[0].used -> x = 0 :: l[1].used -> x = 1 fi;
       if
#ifdef UNCOND
       :: true ->
#else
       :: l[x].over || !AT(x).there ->
#endif
          w = (l[x].ab > 0 && (!AT(x).there || AT(x).ab != l[x].ab) -> l[x].ab : 0);
          if :: w > 0 -> acc[w] = acc[w] | BIT(l[x].s); chosen() :: else fi;
#if WITNESS == 8
          assert(w == 0 || !MAJ(acc[w]));                             /* a late acceptance makes a majority */
#endif
          w = l[x].s;
          AT(x).there = 1; AT(x).prom = l[x].prom; AT(x).ab = l[x].ab; AT(x).av = l[x].av; AT(x).c = l[x].c;
          w = conf[l[x].c].pl[w]; drop(x); changed(w, AGAIN); w = 0
       :: lates > 0 -> drop(x)
       :: else
       fi; x = 0 }
#if WIPES > 0
  /* a member loses all that it had */
  :: atomic { wipes > 0 ->
#if MAXC > 0
       do :: x < PLACES - 1 -> x++ :: break od;
       if :: x == 1 && wipes == WIPES -> x = 0 :: else fi;
#else
       if :: wipes < WIPES -> do :: x < PLACES - 1 -> x++ :: break od :: else fi;
#endif
       wipes--;
       changed(x, true);
       a[x].there = 0; a[x].prom = 0; a[x].ab = 0; a[x].av = 0; a[x].c = 0;
       mk[x].made = NONE; mk[x].num = 0; mk[x].whole = 0; x = 0 }
#endif
  od
}

#if LOOKS > 0
/* a look: a majority shows the same accepted ballot, or that it has never accepted anything */
#define L(s) a[conf[c].pl[s]]
#define LM(s) mk[conf[c].pl[s]]
#define LSURE(s) (L(s).there && L(s).c >= conf[c].made[s] && L(s).c <= c && L(s).ab > 0)
#ifdef LOOKSEEWIPE
#define LNEVER(s) true
#else
#define LNEVER(s) (LM(s).made == conf[c].made[s] && LM(s).num <= c && LM(s).whole)
#endif
proctype look() {
  byte x, c, ab, av, n, base;
  bit going;
#ifdef COLLECT
  bit gr;
#endif
end:
  do
  :: atomic { looks > 0 -> looks--; going = 1; base = last; n = 0; ab = 0; av = 0; c = 0; do :: c < cur -> c++ :: break od }
  :: atomic { going ->
       if :: !(n & 1) -> x = 0 :: !(n & 2) -> x = 1 :: !(n & 4) -> x = 2 fi;
       if
       :: LSURE(x) && n == 0 -> ab = L(x).ab; av = L(x).av; n = BIT(x)
#ifdef ONESHOWS
       :: LSURE(x) && n != 0 -> n = n | BIT(x)
#else
       :: LSURE(x) && n != 0 && ab == L(x).ab -> n = n | BIT(x)
#endif
       :: !LSURE(x) && !(L(x).there && L(x).c > c) && ab == 0 && LNEVER(x) -> n = n | BIT(x)
#ifdef COLLECT
          ; if :: grave -> gr = 1 :: else fi
#endif
       :: else
       fi; x = 0;
       if
       :: MAJ(n) ->
#ifdef COLLECT
          if :: av == 0 && gr -> av = TOMB :: else fi; gr = 0;
#endif
          assert(DESC(av, base));                                     /* R */
#if WITNESS == 5
          assert(av == 0);                                            /* a look sees a value */
#endif
          if :: DESC(av, last) -> last = av :: else fi; going = 0; n = 0; ab = 0; av = 0; base = 0; c = 0
       :: else
       fi }
  od
}
#endif

#ifdef COLLECT
/* who collects; any step may be the next, or none */
#ifdef NEWTOO
#define FORMER(q) (a[q].c <= cur)
#elif defined(NONUMBERS)
#define FORMER(q) true
#else
#define FORMER(q) (a[q].c < cur)
#endif
#ifdef OTHERBALLOTS
#define ONE(q) true
#else
#define ONE(q) (kb == 0 || a[q].ab == kb)
#endif
#ifdef NOTALL
#define ENOUGH MAJ(seen)
#else
#define ENOUGH (seen == 7)
#endif
#ifdef NOTTAKEN
#define TAKEN true
#else
#define TAKEN (took == 7)
#endif
#ifdef EARLYNONE
#define TAKENTOO true
#else
#define TAKENTOO TAKEN
#endif
/* nobody has an object there, by the marker that is read after it */
#ifdef PROMISEISNONE
#define NOTHING(q) (a[q].ab == 0 && mk[q].made == 0 && mk[q].whole)
#else
#define NOTHING(q) (!a[q].there && mk[q].made == 0 && mk[q].whole)
#endif
proctype collector() {
  byte x;
end:
  do
  /* the next configuration, of the same members */
  :: atomic { cur < MAXC ->
       cur++; took = 0; seen = 0; flag = 0; kb = 0;
       x = 0; do :: x < 3 -> conf[cur].pl[x] = conf[cur-1].pl[x]; conf[cur].made[x] = conf[cur-1].made[x]; x++ :: else -> break od; x = 0 }
  /* a member takes the number */
  :: atomic { cur > 0 && took != 7 ->
#if WIPES == 0
       x = (took == 0 -> 0 : (took == 1 -> 1 : 2));                  /* the members are called by the order in which they do */
#else
       do :: x < 2 -> x++ :: break od;
#endif
       if
       :: !(took & BIT(x)) && mk[x].made == 0 -> took = took | BIT(x);
#ifndef NONUMBERS
          mk[x].num = cur
#endif
       :: else
       fi; x = 0 }
  /* and is read, when all have */
  :: atomic { cur > 0 && seen < 7 && TAKENTOO -> do :: x < 2 -> x++ :: break od;
       if
       :: !(seen & BIT(x)) && TAKEN && a[x].there && a[x].ab > 0 && a[x].av == TOMB && FORMER(x) && ONE(x) ->
          kb = a[x].ab; seen = seen | BIT(x); flag = flag | BIT(x)
       :: !(seen & BIT(x)) && NOTHING(x) -> seen = seen | BIT(x)
       :: else
       fi; x = 0 }
  :: atomic { seen < 8 && ENOUGH && TAKEN -> sent = sent | flag; flag = 0; seen = 8; kb = 0 }
  /* a delete lands */
  :: atomic { sent != 0 -> do :: x < 2 -> x++ :: break od;
       if
       :: sent & BIT(x) ->
          sent = sent & (7 - BIT(x)); changed(x, true); grave = 1;
          a[x].there = 0; a[x].prom = 0; a[x].ab = 0; a[x].av = 0; a[x].c = 0;
#if WITNESS == 9
          assert(a[0].there || a[1].there || a[2].there);             /* nothing is left */
#endif
       :: else
       fi; x = 0 }
  od
}
#elif MAXC > 0
/* who changes the configuration; any step may be the next, or none */
proctype admin() {
  byte x, n;
end:
  do
  /* the next one: a new member, whose marker is there before it is known */
  :: atomic { cur < MAXC -> n = cur;
       if :: cur == 0 -> x = 2 :: else -> do :: x < 2 -> x++ :: break od; if :: x == 1 && ALIKE -> x = 0 :: else fi fi;
       if
#ifdef NOWAIT
       :: true ->
#else
       /* one at a time: the others are whole */
       :: mk[conf[n].pl[(x+1)%3]].whole && mk[conf[n].pl[(x+1)%3]].made == conf[n].made[(x+1)%3] &&
          mk[conf[n].pl[(x+2)%3]].whole && mk[conf[n].pl[(x+2)%3]].made == conf[n].made[(x+2)%3] ->
#endif
#if WITNESS == 7
          gone = (mk[conf[n].pl[x]].made == NONE);
#endif
          n++; slot = x; took = 0; fenced = 0; has = 0;
          x = 0; do :: x < 3 -> conf[n].pl[x] = conf[n-1].pl[x]; conf[n].made[x] = conf[n-1].made[x]; x++ :: else -> break od;
#if PLACES > 3
          if
          :: conf[n-1].pl[0] + conf[n-1].pl[1] + conf[n-1].pl[2] == 3 -> conf[n].pl[slot] = 3
          :: conf[n-1].pl[0] + conf[n-1].pl[1] + conf[n-1].pl[2] > 3 -> conf[n].pl[slot] = 6 - conf[n-1].pl[0] - conf[n-1].pl[1] - conf[n-1].pl[2]
          :: true
          fi;
#endif
          conf[n].made[slot] = n; cur = n;
          x = conf[n].pl[slot]; mk[x].made = n; mk[x].num = n; mk[x].whole = 0
       :: else
       fi; n = 0; x = 0 }
#if RIVALS > 0
  /* another that wanted the next one has made its marker, and comes second */
  :: atomic { rivals > 0 && cur > 0 -> rivals--; do :: x < 2 -> x++ :: break od; n = conf[cur].pl[x];
       mk[n].made = RIVAL; mk[n].num = cur; mk[n].whole = 0; n = 0; x = 0 }
#endif
  /* another member takes the number */
  :: atomic { cur > 0 && took != OTHERS(slot) -> do :: x < 2 -> x++ :: break od; if :: x == 1 && ALIKE -> x = 0 :: else fi; n = conf[cur].pl[x];
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
       do :: x < 2 -> x++ :: break od; n = conf[cur].pl[x];
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
  :: atomic { cur > 0 && fenced == OTHERS(slot) && mk[conf[cur].pl[slot]].made == cur && !mk[conf[cur].pl[slot]].whole -> n = conf[cur].pl[slot];
       if
#ifdef UNFILLED
       :: true ->
#else
       :: !has || (a[n].there && a[n].c >= cur && a[n].ab > 0) ->
#endif
          mk[n].whole = 1;
#if WITNESS == 6
          assert(!has || cur != MAXC);                                /* the last change is complete, and had a value to copy */
#elif WITNESS == 7
          assert(!has || !gone);                                      /* so is one of a member that had lost everything */
#endif
       :: else
       fi; n = 0 }
  od
}
#endif
init { atomic { 
  do :: i_ < 3 -> conf[0].pl[i_] = i_; mk[i_].whole = 1; i_++ :: else -> break od; i_ = 0;
#if PLACES > 3
  mk[3].made = NONE;
#endif
#ifdef INITBACK
  /* place 2 accepted value 1 under ballot 1, and nobody else did; then it was replaced by place 3, which
   * is whole, and may be replaced by place 2 again */
  cur = 1; conf[1].pl[1] = 1; conf[1].pl[2] = 3; conf[1].made[2] = 1; slot = 2; took = 3; fenced = 3;
  mk[0].num = 1; mk[1].num = 1; mk[3].made = 1; mk[3].num = 1; mk[3].whole = 1;
  a[2].there = 1; a[2].prom = 1; a[2].ab = 1; a[2].av = 1; acc[1] = 4; val[1] = 1; nextb = 2; nextv = 2;
#endif
#ifdef INITDELETED
  /* the first proposer has been promised ballot 1 by members 1 and 2, and has not proposed yet; since then
   * they have accepted TOMB under ballot 2, which is all that was ever written, and 0 has no object */
  parent[TOMB] = 0; acc[2] = 6; val[2] = TOMB; last = TOMB; nb[0] = 2; nextv = TOMB + 1;
  a[1].there = 1; a[1].prom = 2; a[1].ab = 2; a[1].av = TOMB; a[2].there = 1; a[2].prom = 2; a[2].ab = 2; a[2].av = TOMB;
  p[0].ph = 1; p[0].b = 1; p[0].got = 6;
#endif
  run pro(); run pro(); run net();
#if LOOKS > 0
  run look();
#endif
#ifdef COLLECT
  run collector()
#elif MAXC > 0
  run admin()
#endif
} }
