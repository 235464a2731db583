//! One API under several names: its links come back to Forbear whichever of them they use, and other hosts' do not.

use crate::rig::Rig;

#[tokio::test]
async fn links_to_another_name_of_the_api_come_back() {
    let scenario = "
routes:
  - match: GET /x
    respond:
      headers:
        Link: '<http://two.example/v1/x?page=2>; rel=\"next\", <http://TWO.example:80/v1/x?page=9>; rel=\"last\"'
        Location: http://a.tenant.example/v1/x
      body: {}
";
    let policy = "providers: {p: {base_url: $BASE, hosts: [two.example, '*.tenant.example']}}\n";
    let rig = Rig::new(scenario, policy).await;
    let got = rig.get("/p/x").await;
    assert_eq!(
        got.header("link"),
        "<http://forbear/p/v1/x?page=2>; rel=\"next\", <http://forbear/p/v1/x?page=9>; rel=\"last\""
    );
    assert_eq!(got.header("location"), "http://a.tenant.example/v1/x", "a pattern names somebody else's host too");
}
