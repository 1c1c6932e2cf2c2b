/* A compare-and-swap register over three stores, by CASPaxos. Each member's object is an
 * acceptor (promised ballot, accepted ballot, accepted value, number of the configuration) that is
 * stepped by reading it and writing it back on the condition that it has not changed. A write may
 * land late or never, and its answer may be lost; then the object is read again.
 *
 * A proposer wants to change the value that it last saw to a new one. Values are numbered; parent[v]
 * is the value that v was to replace. With an acceptance it may ask for the promise of its next
 * ballot: then its next round begins with the acceptance.
 *
 * A member may lose all that it had, its marker too. A change of the configuration replaces one
 * member, lost or not: both others take the change's number, then what they have is read, then the
 * member is filled with it and gets a marker of that number, then the number is in force. A change
 * can be interrupted anywhere, several may be under way, and each builds on any configuration that was
 * once in force: it knows its members by their markers.
 *
 * Properties
 *   C  once a value is chosen, what is accepted under a larger ballot is it, or descends from it
 *   S  of the values that were to replace one value, at most one is ever reported as written
 *   R  what a round reports as the present value descends from all that was reported before it began
 */
#ifndef MAXB
#define MAXB 3              /* ballots 1..MAXB; a ballot is used by one proposer, once */
#endif
#ifndef MAXN
#define MAXN 2              /* new values 1..MAXN; 0 is the first */
#endif
#ifndef WIPES
#define WIPES 0             /* members that lose everything, one after the other or two */
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
#ifndef AIM
#define AIM 0               /* witnesses: what is to be reached */
#endif
#define NA 3
#define NP 2
#define NONE 15             /* no marker */
#define MAJ(m) ((m) == 3 || (m) == 5 || (m) == 6 || (m) == 7)
#define BIT(x) (1 << (x))
#define OTHERS(x) (7 - BIT(x))

typedef Acc { byte ver; byte prom; byte ab; byte av; byte c; byte mark };
typedef Late { bit used; byte at; byte expv; byte prom; byte ab; byte av; byte c };
typedef Conf { bit force; byte mark[NA] };
typedef Change { bit open; byte who; byte base; byte took; byte seen; byte prom; byte ab; byte av };
typedef Pro {
  byte ph;                  /* 0 idle, 1 prepare, 2 accept, 3 idle with a ballot that is promised */
  byte b; byte saw; byte v; /* ballot; the value it wants to replace; its new value */
  byte nb;                  /* the ballot whose promise rides on the acceptances; 0 none */
  byte got; byte bb; byte bv; byte prop; byte votes;
  byte c;                   /* the configuration of its round */
  byte base                 /* what had been reported when its round began */
};
Acc a[NA];
Pro p[NP];
Late l[NP];
Conf conf[MAXC+1];
Change ch[MAXC+1];
byte nextb = 1, nextv = 1, nextc = 1, nver = 1, lates = LATES, wipes = WIPES, rides = RIDES;
byte parent[MAXN+1];
byte acc[MAXB+1];           /* who has ever accepted under a ballot */
byte val[MAXB+1];
bit written[MAXN+1];        /* reported as written */
byte last;                  /* the last value that was reported, as written or as present */

#define ME p[_pid-1]
#define DESC(x,y) ((x) == (y) || ((x) > 0 && (parent[x] == (y) || (parent[x] > 0 && (parent[parent[x]] == (y) || parent[parent[parent[x]]] == (y))))))

/* whether a member votes in this proposer's round */
#if defined(SEEWIPE)
#define KNOWN(x) (a[x].c <= ME.c)                           /* what is absent was never written */
#elif defined(ANYNUMBER)
#define KNOWN(x) (a[x].mark == conf[ME.c].mark[x])
#else
#define KNOWN(x) (a[x].mark == conf[ME.c].mark[x] && a[x].c == ME.c)
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
inline store(x, toprom, toab, toav) {
  nver++; a[x].ver = nver; a[x].prom = toprom; a[x].ab = toab; a[x].av = toav;
  if :: toab > 0 -> acc[toab] = acc[toab] | BIT(x); chosen() :: else fi
}
/* what a member had is gone: what was chosen stays chosen */
inline forget(x) {
  i_ = 1; do :: i_ <= MAXB -> if :: !MAJ(acc[i_]) -> acc[i_] = acc[i_] & OTHERS(x) :: else fi; i_++ :: else -> break od; i_ = 0
}
inline clear() { ME.v = 0; ME.got = 0; ME.votes = 0; ME.bb = 0; ME.bv = 0; ME.prop = 0; ME.nb = 0 }
inline giveup() { ME.ph = 0; ME.b = 0; clear() }
inline on() {
  ME.saw = ME.prop;
  if :: ME.nb != 0 -> ME.ph = 3; ME.b = ME.nb :: else -> ME.ph = 0; ME.b = 0 fi;
  clear()
}
inline done() {
  if
  :: ME.prop == ME.v && ME.v != 0 ->
     s_ = 1;
     do :: s_ <= MAXN -> assert(!(s_ != ME.v && written[s_] && parent[s_] == parent[ME.v])); s_++ :: else -> break od; s_ = 0;   /* S */
     written[ME.v] = 1
  :: else
  fi;
  assert(DESC(ME.prop, ME.base));                                     /* R */
  if :: DESC(ME.prop, last) -> last = ME.prop :: else fi;
  if
  :: AIM == 1 && ME.c == MAXC && ME.v != 0 -> assert(false)     /* written under the last configuration */
  :: AIM == 2 && ME.got == 0 && ME.v != 0 -> assert(false)      /* written by a promise that rode */
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
  if :: a[x].ab > ME.bb -> ME.bb = a[x].ab; ME.bv = a[x].av :: else fi
}
inline member() { x = 0; do :: x < NA - 1 -> x++ :: break od }
inline late(toprom, toab, toav) {
  lates--; l[_pid-1].used = 1; l[_pid-1].at = x; l[_pid-1].expv = a[x].ver;
  l[_pid-1].prom = toprom; l[_pid-1].ab = toab; l[_pid-1].av = toav
}
proctype pro() {
  byte x, w;
  do
  /* a round begins: with a new value, or only to read; under a configuration that was once in force */
  :: atomic { ME.ph == 0 && nextb <= MAXB ->
       ME.ph = 1; ME.b = nextb; ME.base = last;
       x = 0; do :: x < MAXC -> x++ :: break od;
       if :: conf[x].force -> ME.c = x :: else -> ME.c = 0 fi; x = 0;
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
       :: a[x].c > ME.c -> giveup()
       :: KNOWN(x) && a[x].prom > ME.b -> giveup()
       :: KNOWN(x) && a[x].prom == ME.b && !(ME.got & BIT(x)) -> promise(x)      /* read back */
       :: KNOWN(x) && a[x].prom < ME.b ->
          if
          :: promise(x); store(x, ME.b, a[x].ab, a[x].av)
          :: lates > 0 && !l[_pid-1].used -> late(ME.b, a[x].ab, a[x].av)
          fi
       :: else
       fi; x = 0 }
  /* a majority has promised: go on from the value accepted last */
  :: atomic { ME.ph == 1 && MAJ(ME.got) ->
#ifdef NOADOPT
       ME.prop = (ME.v != 0 -> ME.v : ME.bv);
#else
       ME.prop = ((ME.v != 0 && ME.bv == ME.saw) -> ME.v : ME.bv);
#endif
       if :: rides > 0 && nextb <= MAXB -> rides--; ME.nb = nextb; nextb++ :: skip fi;
       val[ME.b] = ME.prop; ME.ph = 2 }
  /* accept at one member */
  :: atomic { ME.ph == 2 -> member();
       if
#ifdef NOPROMISE
       :: KNOWN(x) && a[x].ab == ME.b -> vote(x)
       :: KNOWN(x) && a[x].ab != ME.b ->
#else
       :: KNOWN(x) && a[x].ab == ME.b && !(ME.votes & BIT(x)) -> vote(x)         /* read back */
       :: KNOWN(x) && a[x].ab != ME.b && a[x].prom > ME.b -> giveup()            /* unknown: it may surface */
       :: KNOWN(x) && a[x].ab != ME.b && a[x].prom <= ME.b ->
#endif
          w = ME.b;
#ifndef RIDENONE
          if :: ME.nb != 0 -> w = ME.nb :: else fi;
#endif
          if
          :: store(x, w, ME.b, ME.prop); vote(x)
          :: lates > 0 && !l[_pid-1].used -> late(w, ME.b, ME.prop)
          fi; w = 0
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
          :: store(l[x].at, l[x].prom, l[x].ab, l[x].av)
#else
          :: a[l[x].at].ver == l[x].expv -> store(l[x].at, l[x].prom, l[x].ab, l[x].av)
#endif
          :: true
          fi; l[x].used = 0
       :: else
       fi; x = 0 }
  /* a member loses all that it had */
  :: atomic { wipes > 0 -> wipes--; member();
       nver++; a[x].ver = nver; a[x].prom = 0; a[x].ab = 0; a[x].av = 0; a[x].c = 0; a[x].mark = NONE;
       forget(x); x = 0 }
  od
}

#if MAXC > 0
/* those who change the configuration; any step of any change may be the next, or none */
#define HAS(x) (a[x].mark == conf[ch[n].base].mark[x])
proctype admin() {
  byte n, x;
  do
  :: atomic { nextc <= MAXC -> n = nextc; nextc++; ch[n].open = 1; member(); ch[n].who = x;
       x = 0; do :: x < n - 1 -> x++ :: break od;
       if :: conf[x].force -> ch[n].base = x :: else fi;
       x = 0; do :: x < NA -> conf[n].mark[x] = conf[ch[n].base].mark[x]; x++ :: else -> break od;
       conf[n].mark[ch[n].who] = n; x = 0; n = 0 }
  /* another member takes the number */
  :: atomic { nextc > 1 -> n = 1; do :: n < nextc - 1 -> n++ :: break od; member();
       if
#ifdef NOMARKER
       :: ch[n].open && x != ch[n].who && a[x].mark != NONE && a[x].c < n ->
#else
       :: ch[n].open && x != ch[n].who && HAS(x) && a[x].c < n ->
#endif
          nver++; a[x].ver = nver; a[x].c = n; ch[n].took = ch[n].took | BIT(x)
       :: else
       fi; n = 0; x = 0 }
  /* what it has is read */
  :: atomic { nextc > 1 -> n = 1; do :: n < nextc - 1 -> n++ :: break od; member();
       if
#ifdef READEARLY
       :: ch[n].open && x != ch[n].who && HAS(x) && a[x].c == n && !(ch[n].seen & BIT(x)) ->
#else
       :: ch[n].open && ch[n].took == OTHERS(ch[n].who) && x != ch[n].who && a[x].c == n && !(ch[n].seen & BIT(x)) ->
#endif
          ch[n].seen = ch[n].seen | BIT(x);
#ifndef NOMAXPROM
          if :: a[x].prom > ch[n].prom -> ch[n].prom = a[x].prom :: else fi;
#endif
          if :: a[x].ab > ch[n].ab -> ch[n].ab = a[x].ab; ch[n].av = a[x].av :: else fi
       :: else
       fi; n = 0; x = 0 }
  /* the member is filled, and the number is in force */
  :: atomic { nextc > 1 -> n = 1; do :: n < nextc - 1 -> n++ :: break od; x = ch[n].who;
       if
#ifdef FILLFROMONE
       :: ch[n].open && ch[n].took == OTHERS(x) && ch[n].seen != 0 && a[x].c < n ->
#else
       :: ch[n].open && ch[n].seen == OTHERS(x) && a[x].c < n ->
#endif
          forget(x);
          nver++; a[x].ver = nver; a[x].prom = ch[n].prom; a[x].ab = ch[n].ab; a[x].av = ch[n].av; a[x].c = n; a[x].mark = n;
          if :: a[x].ab > 0 -> acc[a[x].ab] = acc[a[x].ab] | BIT(x); chosen() :: else fi;
          conf[n].force = 1; ch[n].open = 0;
          ch[n].who = 0; ch[n].base = 0; ch[n].took = 0; ch[n].seen = 0; ch[n].prom = 0; ch[n].ab = 0; ch[n].av = 0
       :: else
       fi; n = 0; x = 0 }
#ifdef PLAINFILL
  /* a member that lost everything is filled in place, with what the others have */
  :: atomic { member(); n = (x + 1) % 3;
       if
       :: a[x].mark == NONE && a[n].mark != NONE && a[(x + 2) % 3].mark != NONE ->
          nver++; a[x].ver = nver; a[x].c = a[n].c; a[x].mark = conf[a[n].c].mark[x];
          a[x].prom = (a[n].prom > a[(x + 2) % 3].prom -> a[n].prom : a[(x + 2) % 3].prom);
          if
          :: a[n].ab >= a[(x + 2) % 3].ab -> a[x].ab = a[n].ab; a[x].av = a[n].av
          :: else -> a[x].ab = a[(x + 2) % 3].ab; a[x].av = a[(x + 2) % 3].av
          fi;
          if :: a[x].ab > 0 -> acc[a[x].ab] = acc[a[x].ab] | BIT(x); chosen() :: else fi
       :: else
       fi; n = 0; x = 0 }
#endif
  od
}
#endif
init { atomic { conf[0].force = 1; run pro(); run pro(); run net();
#if MAXC > 0
  run admin()
#endif
} }
